#!/usr/bin/env python3
"""Takes all memory of a GPU and keeps taking what others free: hog.py ORDINAL SECONDS"""
import ctypes, sys, time
ctypes.CDLL("libc.so.6").prctl(15, b"memory_hog", 0, 0, 0)
cuda = ctypes.CDLL("libcuda.so.1")
def must(code, what):
    if code: sys.exit(f"{what}: {code}")
must(cuda.cuInit(0), "init")
device, context = ctypes.c_int(), ctypes.c_void_p()
must(cuda.cuDeviceGet(ctypes.byref(device), int(sys.argv[1])), "device")
must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "context")
must(cuda.cuCtxSetCurrent(context), "current")
until, held = time.time() + float(sys.argv[2]), 0
print(f"{time.time():.3f} begins", flush=True)
said = False
while time.time() < until:
    for size in (1 << 30, 1 << 26, 1 << 21):
        address = ctypes.c_uint64()
        while cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0:
            held += size
    if not said:
        print(f"{time.time():.3f} holds {held / 2**30:.2f} GiB, nothing is free", flush=True)
        said = True
    time.sleep(0.005)
print(f"{time.time():.3f} gives back {held / 2**30:.2f} GiB", flush=True)
