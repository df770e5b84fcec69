"""Reads a checkpoint as docs/checkpoints.md describes it, with the package safetensors.

    read_checkpoint.py CHECKPOINT [--weights FILE]

CHECKPOINT is one checkpoint, or the folder with the file `latest`. Verifies every checksum, joins
the intervals of every array, and prints what there is. --weights compares the float master weights
with a safetensors file bit by bit, and the parameters with their rounding to bfloat16.
"""

import argparse
import json
import pathlib
import sys

import ml_dtypes  # lets safetensors return bfloat16 as arrays
import numpy
import safetensors
import xxhash

BLOCK = 2048


def require(condition, what):
    if not condition:
        sys.exit(f"error: {what}")


def read_manifest(folder):
    text = (folder / "manifest.json").read_bytes()
    body, _, end = text.rpartition(b',\n "checksum": "')
    require(end == xxhash.xxh3_64_hexdigest(body).encode() + b'"\n}\n', "manifest.json is damaged")
    manifest = json.loads(text)
    require(manifest["format"] == "zero checkpoint" and manifest["version"] == 1, "the format")
    return manifest


def verify_file(path, checksum):
    """Compares the checksums of the index, of the checksums and of each block of the data."""
    with path.open("rb") as file:
        header = file.read(int.from_bytes(file.read(8), "little"))
        tensors = json.loads(header)

        def verify(begin, end, checksums):
            file.seek(8 + len(header) + begin)
            for number, expected in enumerate(numpy.frombuffer(checksums, "<u8")):
                block = file.read(min(BLOCK, end - begin - number * BLOCK))
                require(xxhash.xxh3_64_intdigest(block) == expected,
                        f"block {number} after {begin} of {path}")

        def read(name):
            begin, end = tensors[name]["data_offsets"]
            file.seek(8 + len(header) + begin)
            return begin, end, file.read(end - begin)

        _, _, groups = read("xxh3_groups")
        require(xxhash.xxh3_64_hexdigest(header + groups) == checksum, f"the index of {path}")
        begin, end, blocks = read("xxh3_blocks")
        verify(begin, end, groups)
        verify(0, begin, blocks)


def read_array(files, parameter, array):
    """Joins the intervals of one array of one parameter."""
    size = int(numpy.prod(parameter["shape"]))
    parts, next_begin = [], 0
    for file, begin, end in parameter["intervals"]:
        require(begin == next_begin, f"the intervals of {parameter['name']}")
        is_whole = begin == 0 and end == size
        name = f"{array['name']}/{parameter['name']}" + ("" if is_whole else f"[{begin}:{end}]")
        parts.append(files[file].get_tensor(name).reshape(-1))
        next_begin = end
    require(next_begin == size, f"the intervals of {parameter['name']}")
    return numpy.concatenate(parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--weights", type=pathlib.Path)
    options = parser.parse_args()

    folder = options.checkpoint
    if (folder / "latest").exists():
        folder = folder / (folder / "latest").read_text().strip()
    manifest = read_manifest(folder)
    files = []
    for file in manifest["files"]:
        verify_file(folder / file["name"], file["checksum"])
        files.append(safetensors.safe_open(folder / file["name"], framework="numpy"))
    weights = options.weights and safetensors.safe_open(options.weights, framework="numpy")

    items, compared = {}, 0
    for parameter in manifest["parameters"]:
        arrays = {}
        for array in manifest["types"][parameter["type"]]:
            if parameter["trainable"] or array["has_frozen"]:
                values = read_array(files, parameter, array)
                key = array["name"], array["dtype"]
                items[key] = items.get(key, 0) + values.size
                arrays[array["name"]] = values
        if weights:
            expected = weights.get_tensor(parameter["name"])
            require(list(expected.shape) == parameter["shape"], f"shape of {parameter['name']}")
            expected = expected.reshape(-1)
            rounded = expected.astype(ml_dtypes.bfloat16)
            require(arrays["master"].tobytes() == expected.tobytes(), f"{parameter['name']} differs")
            require(arrays["parameter"].tobytes() == rounded.tobytes(), f"{parameter['name']} rounded")
            compared += expected.size

    print(f"{folder.name}: {manifest['composition']}")
    print(f"step {manifest['scalars']['step_count']}, {len(manifest['parameters'])} parameters, "
          f"{len(files)} files, all checksums right")
    for (name, dtype), count in items.items():
        print(f"  {name:12} {dtype:5} {count:12} items")
    if weights:
        print(f"{compared} weights have the bits of {options.weights.name}")


if __name__ == "__main__":
    main()
