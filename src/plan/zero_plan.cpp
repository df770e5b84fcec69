// zero-plan: memory and communication of a training, before anything is allocated; --help lists the
// arguments. With --memory it chooses stage and options, and otherwise it shows all stages.
//
// The row "all, in one unit" is the memory of the stages if no parameter names a unit. Below the
// table are the units and tensors that set the size of the leases. Without arguments the table
// holds figure 1 of the ZeRO paper (Rajbhandari et al., 2020): 120, 31.4, 16.6 and 1.9 GB.

#include "column.hpp"
#include "fit.hpp"
#include "model_files.hpp"
#include "settings.hpp"

#include <zero/core/detail/text.hpp>
#include <zero/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace {

using Json = nlohmann::ordered_json;
using planner::Candidate;
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
void print(zero::CommunicationModel const& network, Table const& stages) {
    std::array<zero::CommunicationSeconds, 4> seconds;
    for (std::size_t stage = 0; stage < stages.size(); ++stage)
        seconds[stage] = network.predict(stages[stage].world, stages[stage].step);
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

/// What is planned.
struct Model {
    std::string name;
    std::vector<zero::ParameterSpec> parameters;
    std::size_t elements = 0;
    std::size_t units = 0;
};

Model model_of(Settings const& settings) {
    Model model{settings.model.empty() ? "equal layers" : settings.model,
                settings.model.empty() ? planner::equal_layers(settings.parameters, settings.layers)
                                       : planner::model_named(settings.model)};
    for (zero::ParameterSpec const& parameter : model.parameters) {
        model.units = std::max(model.units, parameter.units.back() + 1);
    }
    planner::add_adapters(model.parameters, model.units,
                          static_cast<std::size_t>(settings.adapters));
    for (zero::ParameterSpec const& parameter : model.parameters) {
        model.elements += parameter.elements;
    }
    return model;
}

Json header_of(Settings const& settings, Model const& model) {
    return {{"model", model.name},
            {"parameters", model.elements},
            {"units", model.units},
            {"ranks", static_cast<std::size_t>(settings.ranks)},
            {"micro_steps", static_cast<std::size_t>(settings.micro_steps)},
            {"accumulate_bytes", static_cast<std::size_t>(settings.accumulate_bytes)}};
}

/// Returns memory, traffic and, with a network, seconds of one stage.
Json json_of(int stage, Column const& column,
             std::optional<zero::CommunicationModel> const& network) {
    Json json{{"stage", stage},
              {"memory", Json::parse(to_json(column.memory))},
              {"lease_bytes", planner::lease_bytes(column.memory)},
              {"read_bytes", column.read_bytes()},
              {"read_between_bytes", column.step.replicated.bytes}};
    if (network) {
        auto const seconds = network->predict(column.world, column.step);
        json["seconds"] = {{"gathers", seconds.gathers},
                           {"reductions", seconds.reductions},
                           {"publishes", seconds.publishes},
                           {"control", seconds.control},
                           {"communication", seconds.total()}};
    }
    return json;
}

Json json_of(Candidate const& candidate, planner::Task const& task) {
    auto const& policies = candidate.policies;
    Json json = json_of(candidate.stage, candidate.column, task.network);
    bool const is_boundary = policies.schedule == zero::ReductionSchedule::boundary;
    json["schedule"] = is_boundary ? "boundary" : "every_micro_step";
    json["on_host"] = policies.on_host;
    if (candidate.stage == 3) {
        auto const& gather = policies.gather;
        json["prefetch_elements"] =
            gather.prefetch_elements ? Json(*gather.prefetch_elements) : Json(nullptr); // one unit
        json["keep_until_update"] = gather.keep_until_update == zero::GatherOptions::all
                                        ? Json("all")
                                        : Json(gather.keep_until_update);
        json["max_live_elements"] =
            planner::is_limited(gather) ? Json(gather.max_live_elements) : Json("all");
    } else {
        json["bucket_bytes"] = policies.bucketer.bucket_bytes;
        json["one_micro_step"] = policies.one_micro_step;
    }
    if (candidate.host_seconds != 0) json["host_seconds"] = candidate.host_seconds;
    json["code"] = planner::code_of(candidate, task.accumulate_bytes);
    return json;
}

double gigabytes(std::uint64_t bytes) {
    return 1e-9 * static_cast<double>(bytes);
}

void print_candidates(planner::Fit const& result, planner::Task const& task) {
    std::printf("   stage  GB on a rank  of it leases%s  %s\n",
                result.on_host ? "  GB on the host" : "",
                task.network ? "seconds of communication" : "GB read in a step");
    int number = 0;
    for (Candidate const& candidate : result.fitting) {
        zero::MemoryPlan const& memory = candidate.column.memory;
        std::printf("%2d %5d  %12.2f  %12.2f", ++number, candidate.stage,
                    gigabytes(candidate.bytes()), gigabytes(planner::lease_bytes(memory)));
        if (result.on_host) std::printf("  %14.2f", gigabytes(memory.tier_bytes));
        if (task.network)
            std::printf("  %24.3g", candidate.seconds + candidate.host_seconds);
        else
            std::printf("  %17.2f", gigabytes(candidate.column.read_bytes()));
        std::printf("  %s\n", planner::options_of(candidate).c_str());
    }
}

/// Prints what fits into the memory of a rank. Returns the exit status: 1 if nothing does.
int choose(Settings const& settings, Model const& model) {
    planner::Task const task{.model = model.parameters,
                             .ranks = static_cast<std::size_t>(settings.ranks),
                             .micro_steps = static_cast<std::size_t>(settings.micro_steps),
                             .accumulate_bytes =
                                 static_cast<std::size_t>(settings.accumulate_bytes),
                             .network = planner::network_of(settings),
                             .tier_rate = settings.tier_rate,
                             .memory = static_cast<std::uint64_t>(settings.memory)};
    planner::Fit const result = planner::fit(task);
    bool const fits = !result.fitting.empty();
    std::uint64_t const missing = fits ? 0 : result.smallest.bytes() - task.memory;
    if (settings.has_json) {
        Json json = header_of(settings, model);
        json["memory_bytes"] = task.memory;
        json["fitting"] = Json::array();
        for (Candidate const& candidate : result.fitting)
            json["fitting"].push_back(json_of(candidate, task));
        if (!fits) {
            json["smallest"] = json_of(result.smallest, task);
            json["missing_bytes"] = missing;
            json["remedies"] = planner::remedies_of(result, task);
        }
        std::printf("%s\n", json.dump(2).c_str());
        return fits ? 0 : 1;
    }
    using zero::detail::bytes_text;
    std::printf("%s: %zu parameters in %zu units on %zu ranks of %s, %zu micro-step%s a step; "
                "bytes: 2 a parameter, %zu a gradient, 12 of optimizer state\n\n",
                model.name.c_str(), model.elements, model.units, task.ranks,
                bytes_text(task.memory).c_str(), task.micro_steps, task.micro_steps == 1 ? "" : "s",
                task.accumulate_bytes);
    if (!fits) {
        std::printf("nothing fits: the smallest, stage %d (%s), takes %s, %s too much\n",
                    result.smallest.stage, planner::options_of(result.smallest).c_str(),
                    bytes_text(result.smallest.bytes()).c_str(), bytes_text(missing).c_str());
        for (std::string const& remedy : planner::remedies_of(result, task))
            std::printf("- %s\n", remedy.c_str());
        std::printf("\n%s", result.smallest.column.leases.c_str());
        return 1;
    }
    if (result.on_host) std::printf("on the device alone nothing fits; with states on its host:\n");
    print_candidates(result, task);
    std::printf("\nthe first one:\n\n%s",
                planner::code_of(result.fitting.front(), task.accumulate_bytes).c_str());
    if (result.on_host)
        std::printf("\nIt needs <zero/policy/host_memory.hpp> and a communicator of a device.%s\n",
                    task.tier_rate == 0 ? " --tier-rate adds the seconds of the link to the host."
                                        : "");
    return 0;
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
    Model model = model_of(settings);
    if (settings.memory != 0) return choose(settings, model);
    planner::Policies const policies{
        .file = {settings.offload_ratio, static_cast<std::uint64_t>(settings.offload_chunk_bytes),
                 static_cast<std::size_t>(settings.offload_depth)},
        .on_host = settings.on_host != 0,
        .delays_update = settings.delayed != 0,
        .in_tree = settings.in_tree != 0,
        .shard = static_cast<std::size_t>(settings.shard),
        .secondary = static_cast<std::size_t>(settings.secondary),
        .codes = settings.codes};
    auto const of_stage = [&](int stage) {
        return planner::plan(model.parameters, ranks,
                             static_cast<std::size_t>(settings.accumulate_bytes), stage,
                             static_cast<std::size_t>(settings.micro_steps), policies);
    };
    auto const of_stages = [&] {
        return Table{of_stage(0), of_stage(1), of_stage(2), of_stage(3)};
    };
    Table const stages = of_stages();
    if (settings.has_json) {
        Json json = header_of(settings, model);
        json["stages"] = Json::array();
        for (int stage = 0; stage < 4; ++stage)
            json["stages"].push_back(
                json_of(stage, stages[static_cast<std::size_t>(stage)], network));
        std::printf("%s\n", json.dump(2).c_str());
        return 0;
    }
    for (zero::ParameterSpec& parameter : model.parameters) parameter.units = {0};
    Table const in_one_unit = of_stages();
    auto const content = [](zero::BufferKind kind) {
        return [kind](Column const& stage) { return stage.memory[kind].content_bytes; };
    };
    auto const all = [](Column const& stage) { return stage.memory.engine_bytes(); };
    std::printf("%s: %zu parameters in %zu units on %.0f ranks; bytes: 2 a parameter, %.0f a "
                "gradient, 12 of optimizer state\n\n",
                model.name.c_str(), model.elements, model.units, settings.ranks,
                settings.accumulate_bytes);
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
    if (settings.codes.errors != 0) {
        print("gradient errors", stages, content(zero::BufferKind::gradient_errors));
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
               - stage.memory[zero::BufferKind::secondary_copies].content_bytes
               - stage.memory[zero::BufferKind::gradient_errors].content_bytes;
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
    if (settings.shard != 0) {
        print("of it between groups", stages,
              [](Column const& stage) { return stage.step.replicated.bytes; });
    }
    if (settings.tier_rate != 0) {
        std::printf("\nseconds of the %s in a step\n", policies.on_host ? "link" : "file");
        std::printf("%-22s", "at least");
        for (Column const& stage : stages)
            std::printf("%10.3g", planner::tier_seconds(stage, settings.tier_rate));
        std::printf("\n");
    }
    if (network) print(*network, stages);
    std::printf("\nstages 0 to 2\n%s\nstage 3\n%s", stages[2].leases.c_str(),
                stages[3].leases.c_str());
    return 0;
} catch (zero::Error const& error) {
    std::fprintf(stderr, "zero-plan: %s\n", error.what());
    return 2;
}
