// The experiment is a module of its own, which is never tagged: what ships does not depend on it.
module github.com/proxyweir/weir/experiment

go 1.26.0

require github.com/proxyweir/weir v0.0.0

replace github.com/proxyweir/weir => ..
