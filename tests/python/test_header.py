"""Compares python/zero/_library.py with zero_c.h: members, enumerators, functions, in order."""

import ctypes
import pathlib
import re
import unittest
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p

from zero import _library

HEADER = (pathlib.Path(__file__).parents[2] / "include" / "zero_c.h").read_text()
TEXT = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)
TYPES = {"int": c_int, "double": c_double, "float": c_float, "size_t": c_size_t,
         "uint64_t": c_uint64, "int64_t": c_int64, "zero_dtype": c_int, "zero_optimizer": c_int,
         "zero_reduction": c_int, "zero_schedule": c_int, "zero_status": c_int,
         "char const*": c_char_p, "void*": c_void_p, "void const*": c_void_p,
         "zero_rank_body": _library.Body, "zero_update": _library.Update,
         "zero_engine**": POINTER(c_void_p), "zero_engine*": c_void_p, "zero_engine const*": c_void_p,
         "zero_communicator*": c_void_p, "zero_communicator const*": c_void_p,
         "zero_status*": POINTER(c_int), "void": None}


def ctype(declared):
    """The ctypes type of a C type."""
    if declared in TYPES:
        return TYPES[declared]
    plain = declared.replace(" const", "").rstrip("*")
    pointed = TYPES.get(plain) or _library.STRUCTURES[plain]
    return POINTER(pointed) if declared.endswith("*") else pointed


def split(declaration):
    """(type, names) of 'double a, b' and 'float* states[2]'."""
    kind, names = re.fullmatch(r"((?:\w+ const|\w+)[ *]*?\*{0,2}) ?([\w\[\], ]+)",
                               " ".join(declaration.split())).groups()
    return kind.strip(), [name.strip() for name in names.split(",")]


class Header(unittest.TestCase):
    def test_structures(self):
        found = dict(re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", TEXT, flags=re.S)[i][::-1]
                     for i in range(6))
        self.assertEqual(set(found), set(_library.STRUCTURES))
        for name, body in found.items():
            members = []
            for declaration in body.split(";"):
                if declaration.strip():
                    kind, names = split(declaration)
                    for member in names:
                        plain, _, count = member.partition("[")
                        kind_of = ctype(kind)
                        members.append((plain, kind_of * int(count[:-1]) if count else kind_of))
            self.assertEqual(_library.STRUCTURES[name]._fields_, members, name)

    def test_enumerations(self):
        for name, values in (("zero_status", _library.STATUSES), ("zero_dtype", _library.DTYPES),
                             ("zero_optimizer", _library.OPTIMIZERS),
                             ("zero_reduction", _library.REDUCTIONS),
                             ("zero_schedule", _library.SCHEDULES)):
            body = re.search(r"typedef enum " + name + r" \{(.*?)\}", TEXT, flags=re.S).group(1)
            found = re.findall(r"ZERO_(\w+)(?: = (\d+))?", body)
            self.assertEqual(len(found), len(values))
            for number, (enumerator, value) in enumerate(found):
                if value:  # otherwise they count
                    self.assertEqual(int(value), number)
                expected = values[number].upper().replace("FLOAT32", "FLOAT")
                self.assertTrue(enumerator.endswith(expected), (enumerator, expected))

    def test_functions(self):
        unused = {"zero_set_error_handler", "zero_exit_on_error", "zero_open", "zero_close"}
        found = re.findall(r"ZERO_C_API ([\w *]+?)(zero_\w+)\(([^;]*?)\);", TEXT, flags=re.S)
        self.assertEqual({name for _, name, _ in found} - unused, set(_library.FUNCTIONS))
        for result, name, arguments in found:
            if name in unused:
                continue
            types = [ctype(split(argument)[0]) for argument in arguments.split(",")
                     if argument.strip() != "void"]
            self.assertEqual(_library.FUNCTIONS[name], (ctype(result.strip()), types), name)

    def test_sizes(self):
        options = _library.Options()
        _library.C.zero_options_init(ctypes.byref(options), ctypes.sizeof(options))
        self.assertEqual(options.size, ctypes.sizeof(options))
        self.assertEqual((options.stage, options.bucket_bytes, options.skip_norm_window),
                         (2, 25 << 20, 128))


if __name__ == "__main__":
    unittest.main()
