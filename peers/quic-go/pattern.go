package main

import (
	"bytes"
	"fmt"
)

const (
	// After so many bytes the pattern repeats.
	period = 1 << 24
	// Most bytes written at once.
	piece = 1 << 20
)

var table = func() []byte {
	table := make([]byte, period)
	for i := range table {
		table[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return table
}()

// pattern is at least one byte of the pattern from offset on, unless nothing remains.
func pattern(offset, remaining int64) []byte {
	start := offset % period
	return table[start : start+min(remaining, piece, period-start)]
}

// patternSum is the sum of the pattern's first bytes.
func patternSum(length int64) uint64 {
	var sum uint64
	for offset := int64(0); offset < length; {
		part := pattern(offset, length-offset)
		sum += byteSum(part)
		offset += int64(len(part))
	}
	return sum
}

func byteSum(data []byte) uint64 {
	var sum uint64
	for _, b := range data {
		sum += uint64(b)
	}
	return sum
}

// verify compares bytes received at offset with the pattern.
func verify(offset int64, received []byte) error {
	for len(received) > 0 {
		expected := pattern(offset, int64(len(received)))
		if !bytes.Equal(expected, received[:len(expected)]) {
			return fmt.Errorf("wrong byte at offset %d or soon after", offset)
		}
		offset += int64(len(expected))
		received = received[len(expected):]
	}
	return nil
}
