-- The action weir asks a Weir about each request, and answers what that rejects. Write its address as an IP address: names need a section resolvers.
local weir = "http://weir:8080/"

-- The fields that clients get, and the variables of haproxy.cfg that have them until then.
local told = {
	["x-ratelimit-limit"] = "txn.weir_limit",
	["x-ratelimit-remaining"] = "txn.weir_remaining",
	["x-ratelimit-reset"] = "txn.weir_reset",
}

local function asked(txn)
	local fields = {}
	for name, value in pairs(txn.http:req_get_headers()) do
		if name ~= "content-length" and name ~= "transfer-encoding" and name ~= "connection" and name ~= "expect" and name ~= "host" then
			fields[name] = value
		end
	end
	fields["x-forwarded-for"] = { txn.f:src() } -- and not what the client sends
	fields["x-forwarded-method"] = { txn.f:method() }
	fields["x-forwarded-host"] = { txn.f:req_hdr("host") }
	fields["x-forwarded-uri"] = { txn.f:pathq() }
	return fields
end

core.register_action("weir", { "http-req" }, function(txn)
	local answer = core.httpclient():get{ url = weir, headers = asked(txn), timeout = 1000 }
	if answer.status == 200 or answer.status >= 500 then
		for name, variable in pairs(told) do
			if answer.headers and answer.headers[name] then
				txn:set_var(variable, answer.headers[name][0])
			end
		end
		return -- also if Weir does not answer: then there is no limit
	end
	-- 429, or another if the request is not one that Weir takes, such as 400: else nobody would count it
	local reply = txn:reply{ status = answer.status, reason = answer.reason, body = answer.body }
	for name, values in pairs(answer.headers) do
		if name == "retry-after" or name == "content-type" or name == "location" or name:find("ratelimit", 1, true) then
			reply:add_header(name, values[0])
		end
	end
	txn:done(reply)
end)
