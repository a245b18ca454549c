package ratelimit

// The time zone database for machines that have none, such as the Alpine image of Caddy: 450 KB of the program. The machine's own has priority.
import _ "time/tzdata"
