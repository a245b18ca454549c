package main

import (
	"fmt"
	"strings"
)

// Where things are in the picture, in pixels: panels side by side with the same axes.
const (
	panelWidth, panelHeight = 160, 150
	left, top, gap, right   = 58, 52, 16, 110
	bottom                  = 46
)

// dark has the colours of the picture for who prefers a dark page: rules come before attributes.
const dark = `<style>@media (prefers-color-scheme: dark) {
svg { fill: #e6edf3 } [fill="#fff"] { fill: #151b23 } [fill="#e3e3e3"] { fill: #2d3640 } [fill="#2b6ca3"] { fill: #56b4e9 }
[stroke="#222"] { stroke: #e6edf3 } [stroke="#777"] { stroke: #98a1ab } [stroke="#123f66"] { stroke: #8ccbf5 } [stroke="#a3341f"] { stroke: #f0813a }
}</style>`

// drawing returns the picture of a run as SVG: what is answered in each second. It is the same for the same rows. It needs no colours: lines differ
// in how they are drawn. Its ground is its own, and dark where the reader prefers that.
func drawing(s story, rows [][]row) []byte {
	most := 120
	for _, list := range rows {
		for _, r := range list {
			for r.answered > most {
				most += 20
			}
		}
	}
	width, height := left+len(protections)*(panelWidth+gap)-gap+right, top+panelHeight+bottom
	y := func(answered float64) float64 { return top + panelHeight*(1-answered/float64(most)) }
	var text strings.Builder
	say := func(format string, values ...any) { fmt.Fprintf(&text, format+"\n", values...) }

	say(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" font-family="sans-serif" font-size="12" fill="#222">`, width, height, width, height)
	say(`<title>Requests that two clusters answer each second while B fails and comes back</title>`)
	say(dark)
	say(`<rect width="%d" height="%d" fill="#fff"/>`, width, height)
	say(`<text transform="translate(16 %d) rotate(-90)" text-anchor="middle">answered requests a second</text>`, top+panelHeight/2)
	for i, p := range protections {
		x0 := left + i*(panelWidth+gap)
		x := func(second int) float64 { return float64(x0) + panelWidth*float64(second)/float64(s.ends) }
		say(`<text x="%d" y="18" text-anchor="middle" font-weight="bold">%s</text>`, x0+panelWidth/2, p.title)
		say(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#e3e3e3"/>`, x(s.fails), top, x(s.back)-x(s.fails), panelHeight)
		say(`<text x="%.1f" y="%d" text-anchor="middle" font-size="11">B fails</text>`, x(s.fails), top-8)
		say(`<text x="%.1f" y="%d" text-anchor="middle" font-size="11">B is back</text>`, x(s.back), top-8)
		for _, second := range []int{s.fails, s.back} {
			say(`<path d="M%.1f %dv%d" stroke="#777"/>`, x(second), top-4, panelHeight+4)
		}
		for tick := 0; tick <= most; tick += 40 {
			say(`<path d="M%d %.1fh-4" stroke="#222"/>`, x0, y(float64(tick)))
			if i == 0 {
				say(`<text x="%d" y="%.1f" text-anchor="end">%d</text>`, x0-8, y(float64(tick))+4, tick)
			}
		}
		for second := 0; second < s.ends; second += 20 {
			say(`<path d="M%.1f %dv4" stroke="#222"/>`, x(second), top+panelHeight)
			say(`<text x="%.1f" y="%d" text-anchor="middle">%d</text>`, x(second), top+panelHeight+17, second)
		}
		say(`<text x="%d" y="%d" text-anchor="middle">seconds</text>`, x0+panelWidth/2, top+panelHeight+36)
		var line strings.Builder
		for second, r := range rows[i] {
			command := "L"
			if second == 0 {
				command = "M"
			}
			fmt.Fprintf(&line, "%s%.1f %.1fH%.1f", command, x(second), y(float64(r.answered)), x(second+1))
		}
		say(`<path d="%sV%dH%dZ" fill="#2b6ca3" fill-opacity="0.25"/>`, line.String(), top+panelHeight, x0)
		say(`<path d="%s" fill="none" stroke="#123f66" stroke-width="1.8"/>`, line.String())
		say(`<path d="M%d %.1fh%d" stroke="#a3341f" stroke-width="1.4" stroke-dasharray="6 3"/>`, x0, y(float64(s.capacity())), panelWidth)
		say(`<path d="M%d %.1fh%d" stroke="#222" stroke-width="1.2" stroke-dasharray="1.5 3"/>`, x0, y(s.rate()), panelWidth)
		say(`<path d="M%d %dv%dh%d" fill="none" stroke="#222"/>`, x0, top, panelHeight, panelWidth)
	}
	end := width - right + 6
	say(`<text x="%d" y="%.1f" font-size="11">clients begin %.0f</text>`, end, y(s.rate())+1, s.rate())
	say(`<text x="%d" y="%.1f" font-size="11">A can do %d</text>`, end, y(float64(s.capacity()))+7, s.capacity())
	say(`</svg>`)
	return []byte(text.String())
}
