package resp

import "strings"

// slots is the number of slots of a Cluster.
const slots = 16384

// SlotOf returns the slot of a key: the CRC-16 of its hash tag, which is the part in the first braces unless that is empty, or of the whole key.
// The CRC is that of XMODEM, as https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/ has it.
func slotOf(key string) int {
	tag := key
	if from := strings.IndexByte(key, '{'); from >= 0 {
		if length := strings.IndexByte(key[from+1:], '}'); length > 0 {
			tag = key[from+1 : from+1+length]
		}
	}
	crc := 0
	for i := 0; i < len(tag); i++ {
		crc = crc<<8&0xffff ^ crcs[crc>>8^int(tag[i])]
	}
	return crc & (slots - 1)
}

// crcs are the CRCs of all bytes.
var crcs = makeCRCs()

func makeCRCs() []int {
	list := make([]int, 256)
	for i := range list {
		crc := i << 8
		for bit := 0; bit < 8; bit++ {
			crc <<= 1
			if crc > 0xffff {
				crc ^= 0x11021
			}
		}
		list[i] = crc
	}
	return list
}
