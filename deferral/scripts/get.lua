return describe(ARGV[1], ARGV[2] ~= '' and ARGV[2])
