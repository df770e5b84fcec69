// Prints memory and traffic of every stage side by side, for a model of any size on any number of
// ranks, before anything is allocated:
//
//   plan [--parameters 7.5e9] [--ranks 64] [--layers 72] [--accumulate-bytes 2]
//
// Without arguments it prints figure 1 of the ZeRO paper (Rajbhandari et al., 2020):
// 120, 31.4, 16.6 and 1.9 GB.

#include <zero/zero.hpp>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct Settings {
    double parameters = 7.5e9;
    double ranks = 64;
    double layers = 72; ///< one parameter each, of equal size; stage 3 gathers them one by one
    double accumulate_bytes = 2; ///< per gradient; the default of the library is 4, a float
};

/// @throws zero::InvalidArgument naming the argument and the remedy
Settings read(int count, char** arguments) {
    Settings settings;
    for (int index = 1; index < count; index += 2) {
        std::string const name = arguments[index];
        double* const value = name == "--parameters"         ? &settings.parameters
                              : name == "--ranks"            ? &settings.ranks
                              : name == "--layers"           ? &settings.layers
                              : name == "--accumulate-bytes" ? &settings.accumulate_bytes
                                                             : nullptr;
        char* end = nullptr;
        if (value == nullptr || index + 1 == count)
            throw zero::InvalidArgument("'" + name
                                        + "': give --parameters, --ranks, --layers or "
                                          "--accumulate-bytes, each with a number");
        *value = std::strtod(arguments[index + 1], &end);
        if (*end != '\0' || !(*value >= 1.0 && *value <= 1e15) || *value != std::floor(*value))
            throw zero::InvalidArgument(name + " " + arguments[index + 1]
                                        + ": a whole number between 1 and 1e15, such as 7.5e9");
    }
    if (settings.layers > settings.parameters || settings.ranks > 1e5 || settings.layers > 1e5)
        throw zero::InvalidArgument(
            "at most 1e5 ranks, 1e5 layers, and no more layers than parameters");
    return settings;
}

std::vector<zero::ParameterSpec> model_of(Settings const& settings) {
    auto const layers = static_cast<std::size_t>(settings.layers);
    auto const elements = static_cast<std::size_t>(settings.parameters);
    std::vector<zero::ParameterSpec> model;
    for (std::size_t layer = 0; layer < layers; ++layer)
        model.push_back({.name = "layer " + std::to_string(layer),
                         .elements = elements / layers + (layer < elements % layers ? 1 : 0),
                         .units = {layer}});
    return model;
}

/// One rank under one stage.
struct Column {
    zero::MemoryPlan memory;
    std::uint64_t read_bytes; ///< from other ranks in a step of one micro-step
};

Column plan(Settings const& settings, int stage) {
    auto const ranks = static_cast<std::size_t>(settings.ranks);
    zero::LayoutOptions const options{
        .world = ranks, .element_bytes = 2, .buckets_inside_units = stage == 3};
    auto const layout = zero::make_layout<zero::ContiguousPartitioner, zero::UnitBucketer>(
        model_of(settings), options);
    auto const schedule = zero::default_schedule(stage);
    auto const row = zero::stage_row(stage, schedule);
    // Of rank 0: with one parameter per layer no other rank has more.
    auto const totals = zero::count_layout(layout, 0, row, zero::Storage::owned, 0);
    zero::ElementSizes const sizes{.parameter = 2,
                                   .gradient = 2,
                                   .communication = 2,
                                   .accumulation =
                                       static_cast<std::size_t>(settings.accumulate_bytes),
                                   .master = 4,
                                   .optimizer_state = 8};
    std::vector<std::size_t> acquired; // stage 3: each layer, forward and backward
    for (std::size_t unit = 0; unit < layout.units(); ++unit)
        acquired.insert(acquired.end(), {unit, unit});
    auto const traffic = zero::step_traffic_of_rank(layout, 0, stage, schedule, 1, acquired);
    // The conversion before sending takes one bucket.
    bool const is_rounded_to_send =
        schedule == zero::ReductionSchedule::boundary && sizes.accumulation != sizes.communication;
    return {zero::plan_memory(row, totals, sizes, zero::Storage::owned, is_rounded_to_send, 0),
            sizes.communication * traffic.total()};
}

template <class Value>
void print(char const* name, std::array<Column, 4> const& stages, Value value) {
    std::printf("%-22s", name);
    for (Column const& stage : stages)
        std::printf("%10.1f", static_cast<double>(value(stage)) * 1e-9);
    std::printf("\n");
}

} // namespace

int main(int count, char** arguments) try {
    Settings const settings = read(count, arguments);
    std::array<Column, 4> const stages{plan(settings, 0), plan(settings, 1), plan(settings, 2),
                                       plan(settings, 3)};
    auto const content = [](zero::BufferKind kind) {
        return [kind](Column const& stage) { return stage.memory[kind].content_bytes; };
    };
    std::printf("%.0f parameters in %.0f layers on %.0f ranks; bytes: 2 a parameter, %.0f a "
                "gradient, 12 of optimizer state\n\n",
                settings.parameters, settings.layers, settings.ranks, settings.accumulate_bytes);
    std::printf("GB on a rank             stage 0   stage 1   stage 2   stage 3\n");
    print("parameters", stages, content(zero::BufferKind::parameters));
    print("gradients", stages, content(zero::BufferKind::gradients));
    print("optimizer state", stages, [](Column const& stage) {
        return stage.memory[zero::BufferKind::master_weights].content_bytes
               + stage.memory[zero::BufferKind::optimizer_state].content_bytes;
    });
    print("model states", stages,
          [](Column const& stage) { return stage.memory.model_state_bytes(); });
    print("buckets and padding", stages, [](Column const& stage) {
        return stage.memory.engine_bytes() - stage.memory.model_state_bytes();
    });
    print("all", stages, [](Column const& stage) { return stage.memory.engine_bytes(); });
    std::printf("\n");
    print("read in a step", stages, [](Column const& stage) { return stage.read_bytes; });
    return 0;
} catch (zero::InvalidArgument const& error) {
    std::fprintf(stderr, "plan: %s\n", error.what());
    return 2;
}
