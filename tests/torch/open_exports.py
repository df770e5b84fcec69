"""Opens the files that write_exports makes, with safetensors, torch and transformers, and exchanges
models in several files with exchange_models.

usage: open_exports.py WRITE_EXPORTS FOLDER EXCHANGE_MODELS
"""

import glob
import importlib.util
import os
import re
import shutil
import subprocess
import sys

program = sys.argv[1]
folder = os.path.join(sys.argv[2], "exports")
models = os.path.abspath(os.path.join(sys.argv[2], "models"))
stand_ins = os.path.join(sys.argv[2], "stand_ins")


def make_stand_ins():
    """Makes empty libraries in place of those for devices, which torch loads but does not call."""
    shutil.rmtree(stand_ins, ignore_errors=True)
    os.makedirs(stand_ins)
    spec = importlib.util.find_spec("torch")
    libraries = glob.glob(os.path.join(os.path.dirname(spec.origin), "lib", "*.so"))
    run = {"check": True, "capture_output": True, "text": True}
    missing = set(re.findall(r"(\S+) => not found", subprocess.run(["ldd", *libraries], **run).stdout))
    undefined = subprocess.run(["nm", "-D", "--undefined-only", *libraries], **run).stdout
    for library in missing:
        path = os.path.join(stand_ins, library)
        names = set(re.findall(rf"(\w+)@{re.escape(library)}$", undefined, re.MULTILINE))
        with open(path + ".c", "w") as file:
            file.write("".join(f"void {name}(void) {{}}\n" for name in names))
        with open(path + ".map", "w") as file:
            file.write(f"{library} {{ global: *; }};\n")
        versions = [f"-Wl,--version-script={path}.map"] if names else []
        subprocess.run(["cc", "-shared", "-o", path, path + ".c", f"-Wl,-soname,{library}",
                        *versions], **run)


# scripts/test.sh installs torch without the libraries for devices, which are larger than itself.
if "ZERO_STAND_INS" not in os.environ and importlib.util.find_spec("torch"):
    try:
        make_stand_ins()
        paths = [stand_ins, os.environ.get("LD_LIBRARY_PATH", "")]
        os.environ.update(ZERO_STAND_INS="1", LD_LIBRARY_PATH=":".join(filter(None, paths)))
        os.execv(sys.executable, [sys.executable, *sys.argv])
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no stand-ins for libraries of devices: {error!r}", file=sys.stderr)
sys.setdlopenflags(os.RTLD_LAZY)  # functions for devices are not looked up

for package in ("safetensors", "torch", "transformers"):
    try:
        __import__(package)
    except Exception as error:
        print(f"skipped: no {package}, because Python could not import it: {error!r}")
        sys.exit(0)

import safetensors
import safetensors.torch
import torch
import transformers

shutil.rmtree(folder, ignore_errors=True)
os.makedirs(folder)
config = transformers.GPT2Config(n_layer=2, n_embd=8, n_head=2, n_positions=7, vocab_size=11,
                                 tie_word_embeddings=False)
model = transformers.GPT2LMHeadModel(config)
shapes = {name: value.shape for name, value in model.state_dict().items()}
expected = {}
with open(os.path.join(folder, "shapes"), "w") as file:
    for number, (name, shape) in enumerate(shapes.items()):
        print(name, *shape, file=file)
        elements = torch.arange(shape.numel()) * 7 + number
        expected[name] = ((elements % 253) / 8 - 15).reshape(shape)
subprocess.run([program, os.path.join(folder, "shapes"), folder], check=True)

files = {"saved": torch.float32, "saved_bfloat16": torch.bfloat16, "consolidated": torch.float32,
         "consolidated_float16": torch.float16}
for name, dtype in files.items():
    path = os.path.join(folder, name + ".safetensors")
    with safetensors.safe_open(path, framework="pt") as file:
        assert file.metadata()["format"] == "pt", file.metadata()
        assert set(file.keys()) == set(shapes), file.keys()
    tensors = safetensors.torch.load_file(path)
    for key, value in tensors.items():
        assert value.dtype == dtype and torch.equal(value.float(), expected[key]), (name, key)
    model.load_state_dict(tensors, strict=True)
    pretrained = os.path.join(folder, name)
    config.save_pretrained(pretrained)
    os.symlink(os.path.abspath(path), os.path.join(pretrained, "model.safetensors"))
    loaded, report = transformers.GPT2LMHeadModel.from_pretrained(
        pretrained, output_loading_info=True, torch_dtype=torch.float32)
    assert not any(report.values()), report
    for key, value in loaded.state_dict().items():
        assert torch.equal(value, expected[key]), (name, key)
    print(f"{name}: {len(tensors)} tensors open with safetensors, torch and transformers")

# A model of transformers in several files, through the library, and back.
shutil.rmtree(models, ignore_errors=True)
for name in ("names", "linear", "gpt2"):
    os.makedirs(os.path.join(models, name))
config = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, n_positions=7, vocab_size=11)
model = transformers.GPT2LMHeadModel(config)
for parameter in model.parameters():
    torch.nn.init.normal_(parameter)
model.save_pretrained(os.path.join(models, "in"), max_shard_size="8KB")
files = glob.glob(os.path.join(models, "in", "*.safetensors"))
assert len(files) > 2, files
subprocess.run([sys.argv[3], "2", "16", "7", "11", os.path.join(models, "in"), models], check=True)
expected = model.state_dict()


def tensors_of(name):
    """Returns the tensors of all files in a folder, where no tensor is twice."""
    tensors = {}
    for path in sorted(glob.glob(os.path.join(models, name, "*.safetensors"))):
        part = safetensors.torch.load_file(path)
        assert not tensors.keys() & part.keys(), path
        tensors.update(part)
    return tensors


def block(name, layer):
    return expected[f"transformer.h.{layer}.{name}"]


names = tensors_of("names")
linear = tensors_of("linear")
assert len(names) == 4 + 2 * 12 and len(linear) == 4 + 2 * 16, (len(names), len(linear))
for layer in range(2):
    for own, other in {"qkv": "attn.c_attn", "projection": "attn.c_proj", "up": "mlp.c_fc",
                       "down": "mlp.c_proj"}.items():
        weight, bias = (block(f"{other}.{kind}", layer) for kind in ("weight", "bias"))
        assert torch.equal(names[f"block{layer}.{own}.weight"], weight), own
        assert torch.equal(names[f"block{layer}.{own}.bias"], bias), own
        parts = zip("qkv", weight.T.split(16), bias.split(16)) if own == "qkv" else [(own, weight.T, bias)]
        for part, weight, bias in parts:
            assert torch.equal(linear[f"block{layer}.{part}.weight"], weight), part
            assert torch.equal(linear[f"block{layer}.{part}.bias"], bias), part
# A file of torch.save is refused with the lines that convert it, and these lines do.
pickled = os.path.join(models, "pickled")
os.makedirs(pickled)
torch.save({name: value for name, value in expected.items() if name != "lm_head.weight"},
           os.path.join(pickled, "pytorch_model.bin"))
command = [os.path.abspath(sys.argv[3]), "2", "16", "7", "11", pickled, os.path.join(models, "again")]
for name in ("names", "linear", "gpt2"):
    os.makedirs(os.path.join(models, "again", name))
for path in (pickled, os.path.join(pickled, "pytorch_model.bin")):
    command[-2] = path
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 1 and "pickle" in refused.stderr, refused.stderr
os.chdir(pickled)
exec("\n".join(line.strip() for line in refused.stderr.split("\n") if line.startswith("    ")))
command[-2] = pickled
subprocess.run(command, check=True)
os.chdir(models)

files = sorted(os.listdir(os.path.join(models, "gpt2")))
assert "model.safetensors.index.json" in files and "model.safetensors" not in files, files
config.save_pretrained(os.path.join(models, "gpt2"))
loaded, report = transformers.GPT2LMHeadModel.from_pretrained(os.path.join(models, "gpt2"),
                                                              output_loading_info=True)
assert not any(report.values()), report
for key, value in loaded.state_dict().items():
    assert torch.equal(value, expected[key]), key
print(f"a model of transformers in {len(glob.glob(os.path.join(models, 'in', '*.safetensors')))} files, cut, transposed, joined and "
      f"exported in {sum(name.endswith('.safetensors') for name in files)} files, is equal: {len(expected)} tensors")
