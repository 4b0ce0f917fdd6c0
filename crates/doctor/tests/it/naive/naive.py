"""The naive proxy: one thread receives, works, forwards, and repeats."""
import socket
import sys
import time

listen = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
listen.bind(("0.0.0.0", int(sys.argv[1])))
forward = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
upstream = (sys.argv[2], int(sys.argv[3]))
print("doctor: ready", flush=True)
while True:
    data = listen.recv(2000)
    end = time.perf_counter_ns() + 150_000
    while time.perf_counter_ns() < end:
        pass
    try:
        forward.sendto(data, upstream)
    except OSError:
        pass
