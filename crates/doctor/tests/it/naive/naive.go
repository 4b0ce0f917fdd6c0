// The naive proxy: one goroutine receives, works, forwards, and repeats.
package main

import (
	"fmt"
	"net"
	"os"
	"time"
)

func main() {
	listen, err := net.ListenPacket("udp4", "0.0.0.0:"+os.Args[1])
	if err != nil {
		panic(err)
	}
	upstream, err := net.ResolveUDPAddr("udp4", os.Args[2]+":"+os.Args[3])
	if err != nil {
		panic(err)
	}
	forward, err := net.ListenPacket("udp4", "0.0.0.0:0")
	if err != nil {
		panic(err)
	}
	fmt.Println("doctor: ready")
	buffer := make([]byte, 2000)
	for {
		length, _, err := listen.ReadFrom(buffer)
		if err != nil {
			panic(err)
		}
		end := time.Now().Add(150 * time.Microsecond)
		for time.Now().Before(end) {
		}
		forward.WriteTo(buffer[:length], upstream)
	}
}
