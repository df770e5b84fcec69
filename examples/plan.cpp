// Prints memory and traffic of every stage side by side, before anything is allocated, for a known
// model or for one of any size with equal layers:
//
//   plan --model gpt2|gpt2-xl|llama3-8b [--ranks 64] [--accumulate-bytes 2]
//   plan [--parameters 7.5e9] [--layers 72] [--ranks 64] [--accumulate-bytes 2]
//
// The row "all, in one unit" is what the stages take if no parameter names a unit. Below the table
// are the units and tensors that set the size of the leases. Without arguments the table holds
// figure 1 of the ZeRO paper (Rajbhandari et al., 2020): 120, 31.4, 16.6 and 1.9 GB.

#include "plan/column.hpp"
#include "plan/models.hpp"

#include <zero/zero.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using planner::Column;

struct Settings {
    std::string model;         ///< empty: equal layers
    double parameters = 7.5e9; ///< of equal layers
    double layers = 72;        ///< one parameter each
    double ranks = 64;
    double accumulate_bytes = 2; ///< per gradient; the default of the library is 4, a float
};

/// @throws zero::InvalidArgument naming the argument and the remedy
Settings read(int count, char** arguments) {
    Settings settings;
    bool has_size = false;
    for (int index = 1; index < count; index += 2) {
        std::string const name = arguments[index];
        double* const value = name == "--parameters"         ? &settings.parameters
                              : name == "--ranks"            ? &settings.ranks
                              : name == "--layers"           ? &settings.layers
                              : name == "--accumulate-bytes" ? &settings.accumulate_bytes
                                                             : nullptr;
        if (index + 1 == count || (value == nullptr && name != "--model"))
            throw zero::InvalidArgument("'" + name
                                        + "': give --model with a name, or --parameters, --layers, "
                                          "--ranks or --accumulate-bytes with a number");
        if (value == nullptr) {
            settings.model = arguments[index + 1];
            continue;
        }
        has_size = has_size || name == "--parameters" || name == "--layers";
        char* end = nullptr;
        *value = std::strtod(arguments[index + 1], &end);
        if (*end != '\0' || !(*value >= 1.0 && *value <= 1e15) || *value != std::floor(*value))
            throw zero::InvalidArgument(name + " " + arguments[index + 1]
                                        + ": a whole number between 1 and 1e15, such as 7.5e9");
    }
    if (has_size && !settings.model.empty())
        throw zero::InvalidArgument("--model excludes --parameters and --layers");
    if (settings.layers > settings.parameters || settings.ranks > 1e5 || settings.layers > 1e5)
        throw zero::InvalidArgument(
            "at most 1e5 ranks, 1e5 layers, and no more layers than parameters");
    return settings;
}

using Table = std::array<Column, 4>;

template <class Value>
void print(char const* name, Table const& stages, Value value) {
    std::printf("%-22s", name);
    for (Column const& stage : stages)
        std::printf("%10.1f", static_cast<double>(value(stage)) * 1e-9);
    std::printf("\n");
}

} // namespace

int main(int count, char** arguments) try {
    Settings const settings = read(count, arguments);
    auto model = settings.model.empty()
                     ? planner::equal_layers(settings.parameters, settings.layers)
                     : planner::model_named(settings.model);
    auto const of_stage = [&](int stage) {
        return planner::plan(model, static_cast<std::size_t>(settings.ranks),
                             static_cast<std::size_t>(settings.accumulate_bytes), stage);
    };
    auto const of_stages = [&] {
        return Table{of_stage(0), of_stage(1), of_stage(2), of_stage(3)};
    };
    Table const stages = of_stages();
    std::size_t elements = 0;
    std::size_t units = 0;
    for (zero::ParameterSpec& parameter : model) {
        elements += parameter.elements;
        units = std::max(units, parameter.units.back() + 1);
        parameter.units = {0};
    }
    Table const in_one_unit = of_stages();
    auto const content = [](zero::BufferKind kind) {
        return [kind](Column const& stage) { return stage.memory[kind].content_bytes; };
    };
    auto const all = [](Column const& stage) { return stage.memory.engine_bytes(); };
    std::printf("%s: %zu parameters in %zu units on %.0f ranks; bytes: 2 a parameter, %.0f a "
                "gradient, 12 of optimizer state\n\n",
                settings.model.empty() ? "equal layers" : settings.model.c_str(), elements, units,
                settings.ranks, settings.accumulate_bytes);
    std::printf("GB on a rank             stage 0   stage 1   stage 2   stage 3\n");
    print("parameters", stages, content(zero::BufferKind::parameters));
    print("gradients", stages, content(zero::BufferKind::gradients));
    print("optimizer state", stages, [](Column const& stage) {
        return stage.memory[zero::BufferKind::master_weights].content_bytes
               + stage.memory[zero::BufferKind::optimizer_state].content_bytes;
    });
    print("model states", stages,
          [](Column const& stage) { return stage.memory.model_state_bytes(); });
    print("leases, padding, wire", stages, [](Column const& stage) {
        return stage.memory.engine_bytes() - stage.memory.model_state_bytes();
    });
    print("all", stages, all);
    print("all, in one unit", in_one_unit, all);
    std::printf("\n");
    print("read in a step", stages, [](Column const& stage) { return stage.read_bytes; });
    std::printf("\nstages 0 to 2\n%s\nstage 3\n%s", stages[2].leases.c_str(),
                stages[3].leases.c_str());
    return 0;
} catch (zero::InvalidArgument const& error) {
    std::fprintf(stderr, "plan: %s\n", error.what());
    return 2;
}
