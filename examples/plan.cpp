// Prints memory and traffic of every stage side by side, before anything is allocated; --help lists
// the arguments.
//
// The row "all, in one unit" is the memory of the stages if no parameter names a unit. Below the
// table are the units and tensors that set the size of the leases. Without arguments the table
// holds figure 1 of the ZeRO paper (Rajbhandari et al., 2020): 120, 31.4, 16.6 and 1.9 GB.

#include "plan/column.hpp"
#include "plan/models.hpp"
#include "plan/settings.hpp"

#include <zero/zero.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using planner::Column;
using planner::Settings;

using Table = std::array<Column, 4>;

template <class Value>
void print(char const* name, Table const& stages, Value value) {
    std::printf("%-22s", name);
    for (Column const& stage : stages)
        std::printf("%10.1f", static_cast<double>(value(stage)) * 1e-9);
    std::printf("\n");
}

/// Prints the seconds of communication in a step of each stage, by purpose.
void print(zero::CommunicationModel const& network, std::size_t ranks, Table const& stages) {
    std::array<zero::CommunicationSeconds, 4> seconds;
    for (std::size_t stage = 0; stage < stages.size(); ++stage)
        seconds[stage] = network.predict(ranks, stages[stage].step);
    auto const row = [&](char const* name, auto value) {
        std::printf("%-22s", name);
        for (zero::CommunicationSeconds const& of : seconds) std::printf("%10.3g", value(of));
        std::printf("\n");
    };
    std::printf("\nseconds in a step\n");
    row("gathers", [](auto const& of) { return of.gathers; });
    row("reductions", [](auto const& of) { return of.reductions; });
    row("publishes", [](auto const& of) { return of.publishes; });
    row("control", [](auto const& of) { return of.control; });
    row("communication", [](auto const& of) { return of.total(); });
}

} // namespace

int main(int count, char** arguments) try {
    Settings const settings = planner::read_settings(count, arguments);
    if (settings.asks_for_help) {
        std::printf("%s", planner::usage);
        return 0;
    }
    auto const network = planner::network_of(settings);
    auto const ranks = static_cast<std::size_t>(settings.ranks);
    auto model = settings.model.empty()
                     ? planner::equal_layers(settings.parameters, settings.layers)
                     : planner::model_named(settings.model);
    planner::Policies const policies{
        .file = {settings.offload_ratio, static_cast<std::uint64_t>(settings.offload_chunk_bytes),
                 static_cast<std::size_t>(settings.offload_depth)},
        .on_host = settings.on_host != 0,
        .delays_update = settings.delayed != 0,
        .in_tree = settings.in_tree != 0,
        .secondary = static_cast<std::size_t>(settings.secondary),
        .block_bytes = settings.block_bytes,
        .gradient_block_bytes = settings.gradient_block_bytes};
    auto const of_stage = [&](int stage) {
        return planner::plan(model, ranks, static_cast<std::size_t>(settings.accumulate_bytes),
                             stage, static_cast<std::size_t>(settings.micro_steps), policies);
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
    if (settings.in_tree != 0) {
        print("held sums", stages, content(zero::BufferKind::held_sums));
    }
    if (settings.secondary != 0) {
        print("secondary copies", stages, content(zero::BufferKind::secondary_copies));
    }
    if (policies.file.ratio != 0) {
        print("staging", stages, content(zero::BufferKind::staging));
    }
    print("model states", stages,
          [](Column const& stage) { return stage.memory.model_state_bytes(); });
    print("leases, padding, wire", stages, [](Column const& stage) {
        return stage.memory.engine_bytes() - stage.memory.model_state_bytes()
               - stage.memory[zero::BufferKind::staging].bytes()
               - stage.memory[zero::BufferKind::held_sums].content_bytes
               - stage.memory[zero::BufferKind::secondary_copies].content_bytes;
    });
    print("all", stages, all);
    print("all, in one unit", in_one_unit, all);
    if (policies.file.ratio != 0 || policies.on_host) {
        print(policies.on_host ? "on the host" : "in a file", stages,
              [](Column const& stage) { return stage.memory.tier_bytes; });
        print("read there in a step", stages, [](Column const& stage) { return stage.tier_reads; });
        print("written", stages, [](Column const& stage) { return stage.tier_writes; });
    }
    std::printf("\n");
    print("read in a step", stages, [](Column const& stage) { return stage.read_bytes(); });
    if (settings.secondary != 0) {
        print("of it from copies", stages,
              [](Column const& stage) { return stage.step.secondary.bytes; });
    }
    if (settings.tier_rate != 0) {
        std::printf("\nseconds of the %s in a step\n", policies.on_host ? "link" : "file");
        std::printf("%-22s", "at least");
        for (Column const& stage : stages)
            std::printf("%10.3g", planner::tier_seconds(stage, settings.tier_rate));
        std::printf("\n");
    }
    if (network) print(*network, ranks, stages);
    std::printf("\nstages 0 to 2\n%s\nstage 3\n%s", stages[2].leases.c_str(),
                stages[3].leases.c_str());
    return 0;
} catch (zero::InvalidArgument const& error) {
    std::fprintf(stderr, "plan: %s\n", error.what());
    return 2;
}
