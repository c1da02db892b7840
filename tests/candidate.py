"""A candidate in nothing but Python, for tests: relu of f32, and what the environment variable MISBEHAVE says at every third case."""

import json
import os
import struct
import sys
import time

how = os.environ.get("MISBEHAVE", "")
count = os.environ["COUNT"]  # survives this process
for line in sys.stdin:
    request = json.loads(line)
    with open(count, "a+") as f:
        f.write("x")
        f.seek(0)
        number = len(f.read())
    if number % 3 == 2:
        if how == "crash":
            sys.exit("out of luck")
        if how == "hang":
            os.system("sleep 1000 & echo $! > " + count + ".child; wait")
        if how == "garbage":
            print("progress: 50%", flush=True)
            continue
        if how == "endless":
            while True:
                sys.stdout.write("x" * 65536)
        if how == "error":
            print(json.dumps({"status": "error", "reason": "no luck"}), flush=True)
            continue
        if how == "unsupported":
            print(json.dumps({"status": "unsupported", "reason": "not today"}), flush=True)
            continue
        if how == "forever":
            time.sleep(1000)
    with open(request["input"], "rb") as f:
        blob = f.read()
    start = 8 + int.from_bytes(blob[:8], "little")
    a = json.loads(blob[8:start])["a"]
    begin, end = a["data_offsets"]
    values = struct.unpack(f"<{(end - begin) // 4}f", blob[start + begin : start + end])
    data = struct.pack(f"<{len(values)}f", *(max(v, 0.0) for v in values))
    shape = a["shape"]
    if number % 3 == 2 and how == "wrong":
        data = struct.pack(f"<{len(values)}f", *(v for v in values))
    if number % 3 == 2 and how == "shape":
        shape = shape[::-1]
    if number % 3 == 2 and how == "short":
        data = data[:-4]
    header = json.dumps({"__metadata__": {"qassay.bundle": "1"}, "out": {"dtype": "F32", "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    if not (number % 3 == 2 and how == "missing"):
        with open(request["output"], "wb") as f:
            f.write(len(header).to_bytes(8, "little") + header + data)
    print(json.dumps({"status": "done"}), flush=True)
