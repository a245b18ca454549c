module github.com/proxyweir/weir

go 1.26.0
