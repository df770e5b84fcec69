// Loads a GPT-2 of Hugging Face and exports it again, in every form that rules can give it.
//
//     exchange_models LAYERS WIDTH POSITIONS VOCABULARY IN OUT
//
// IN is the folder of the model. OUT gets the folders "names" (the parameters of examples/gpt, as
// tensors of their own names), "linear" (queries, keys and values apart, all weights of linear
// layers as [outputs, inputs]), and "gpt2" (the latter joined again, as Hugging Face names them).

#include <zero/checkpoint/load_parameters.hpp>
#include <zero/checkpoint/save_parameters.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace {

struct Size {
    std::size_t layers, width, positions, vocabulary;
};

/// The parameters of a GPT-2. @param is_linear queries, keys and values are apart, and weights of
/// linear layers are [outputs, inputs]
std::vector<zero::Parameter<float>> parameters(Size const& size, bool is_linear) {
    std::vector<zero::Parameter<float>> list;
    auto const add = [&](std::string name, std::vector<std::size_t> shape) {
        zero::Parameter<float>& parameter = list.emplace_back();
        parameter.name = std::move(name);
        parameter.shape = std::move(shape);
        parameter.units = {list.size() - 1};
    };
    auto const norm = [&](std::string const& name) {
        add(name + ".weight", {size.width});
        add(name + ".bias", {size.width});
    };
    auto const linear = [&](std::string const& name, std::size_t inputs, std::size_t outputs) {
        add(name + ".weight",
            is_linear ? std::vector{outputs, inputs} : std::vector{inputs, outputs});
        add(name + ".bias", {outputs});
    };
    add("wte", {size.vocabulary, size.width});
    add("wpe", {size.positions, size.width});
    for (std::size_t layer = 0; layer < size.layers; ++layer) {
        std::string const block = "block" + std::to_string(layer) + ".";
        norm(block + "ln1");
        if (is_linear) {
            for (char const* const name : {"q", "k", "v"}) {
                linear(block + name, size.width, size.width);
            }
        } else {
            linear(block + "qkv", size.width, 3 * size.width);
        }
        linear(block + "projection", size.width, size.width);
        norm(block + "ln2");
        linear(block + "up", size.width, 4 * size.width);
        linear(block + "down", 4 * size.width, size.width);
    }
    norm("lnf");
    return list;
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 7) {
        std::fprintf(stderr, "usage: exchange_models LAYERS WIDTH POSITIONS VOCABULARY IN OUT\n");
        return 2;
    }
    try {
        auto const number = [&](int index) { return std::strtoul(argv[index], nullptr, 10); };
        Size const size{number(1), number(2), number(3), number(4)};
        std::filesystem::path const in = argv[5];
        std::filesystem::path const out = argv[6];
        std::size_t const width = size.width;
        zero::TensorRules const gpt2{
            {"wte", {"transformer.wte.weight"}},
            {"wpe", {"transformer.wpe.weight"}},
            {"block*.ln1.*", {"transformer.h.*.ln_1.*"}},
            {"block*.qkv.*", {"transformer.h.*.attn.c_attn.*"}},
            {"block*.projection.*", {"transformer.h.*.attn.c_proj.*"}},
            {"block*.ln2.*", {"transformer.h.*.ln_2.*"}},
            {"block*.up.*", {"transformer.h.*.mlp.c_fc.*"}},
            {"block*.down.*", {"transformer.h.*.mlp.c_proj.*"}},
            {"lnf.*", {"transformer.ln_f.*"}},
        };
        zero::TensorRules linear;
        for (zero::TensorRule rule : gpt2) {
            bool const is_layer =
                rule.parameter.find("ln") == std::string::npos && rule.parameter.find("block") == 0;
            rule.is_transposed = is_layer;
            if (rule.parameter != "block*.qkv.*") {
                linear.push_back(rule);
                continue;
            }
            for (std::size_t part = 0; part < 3; ++part) {
                rule.parameter = std::string("block*.") + "qkv"[part] + ".*";
                rule.part = {part * width, (part + 1) * width};
                linear.push_back(rule);
            }
        }
        zero::TensorRules const joined{
            {"block*.qkv.*", {"block*.q.*", "block*.k.*", "block*.v.*"}, true, true},
            {"block*.ln*", {"block*.ln*"}},
            {"block*", {"block*"}, true},
        };
        zero::run_ranks(3, [&](zero::LoopbackCommunicator& communicator) {
            using Stage = zero::ZeroStage<3>;
            {
                Stage engine(communicator, parameters(size, false));
                zero::load_parameters(engine, in, {.rules = gpt2});
                zero::save_parameters(engine, out / "names/model.safetensors");
            }
            {
                Stage engine(communicator, parameters(size, true));
                zero::load_parameters(engine, in, {.rules = linear});
                zero::save_parameters(engine, out / "linear/model.safetensors",
                                      {.max_file_bytes = 6000});
            }
            Stage engine(communicator, parameters(size, false));
            zero::load_parameters(engine, out / "linear", {.rules = joined});
            zero::save_parameters(engine, out / "gpt2/model.safetensors",
                                  {.max_file_bytes = 10000, .rules = gpt2});
        });
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
