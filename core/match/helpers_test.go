package match

// interpreted says that Yaegi runs the tests. The file that says otherwise is one that Yaegi leaves out.
var interpreted = true
