#pragma once

// The arguments of the planner.

#include "column.hpp"

#include <zero/core/error.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/ops/block_codecs.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

namespace planner {

inline constexpr char const* usage =
    R"(Prints the stages and options that fit into the memory of a rank, the fastest first, and the
code of the first one. --memory is what activations leave of a rank's memory; without --link,
traffic decides instead of seconds. Where nothing fits, states go to the host of a device:

  zero-plan --model MODEL --memory 80GB --ranks 64 [--link 50GB/s] [--micro-steps 1] [--json]

MODEL is gpt2, gpt2-medium, gpt2-large, gpt2-xl or llama3-8b, a safetensors file, an index of
several, a config.json of Hugging Face (gpt2, llama, mistral, qwen2), or a folder with one of them.

Without --memory, prints memory and traffic of every stage side by side, for a model or for one of
any size with equal layers:

  zero-plan --model MODEL [--ranks 64] [--accumulate-bytes 2] [--micro-steps 1] [--json]
  zero-plan [--parameters 7.5e9] [--layers 72] [--ranks 64] [--accumulate-bytes 2] [--micro-steps 1]

With a network, also predicts the seconds of communication in a step. The network has one level,
or one inside hosts and one between them (seconds, and bytes per second; --link 25GB/s is
--bandwidth 25e9):

  --latency 5e-6 --bandwidth 25e9
  --latency 5e-6 --bandwidth 200e9 --ranks-per-host 8 --latency-between 20e-6
      --bandwidth-between 50e9 [--algorithm ring|direct|hierarchical]

With TreeReduction on such a number of ranks, also what it holds; over --algorithm hierarchical
reductions send floats between hosts:

  --in-tree 1

With Groups<C, Secondary>, the copies of stage 3 that so many ranks share:

  --secondary 8

With Groups<C, Hybrid> in stages 1 to 3, groups of so many ranks, each with all states:

  --shard 8

With Wire in stages 1 to 3, weights in codes; gradients in codes, and what ErrorFeedback keeps of
each; and sums of gradients between groups, which otherwise are in the codes of gradients:

  --wire int8|int4
  --wire-gradients int8|int4 [--feedback float|int8|int4]
  --shard 8 --wire-between int8|int4|plain

With a frozen model and so many elements of trainable adapters, in equal parts in its units; with
FrozenWeights stage 3 keeps the model in codes:

  --adapters 4e6 [--wire-frozen int8|int4]

With Offload<To<FileTier, ...>> of optimizer states and master weights, and in stage 3 of
parameters, the bytes of the file of a rank, and of staging memory; with DelayedUpdate parameters
stay in memory:

  --offload-ratio 1 [--offload-chunk-bytes 12582912] [--offload-depth 8] [--delayed 1]

With Offload<To<HostMemory, ...>, UpdateOnDevice> of all states of a device that a stage may keep
on its host (gradients from stage 2 on, parameters in stage 3), the bytes there:

  --on-host 1

With either, the least seconds of a step from the bytes per second of the disk, both ways together,
or of the link to the host, each way:

  --tier-rate 2e9
)";

struct Settings {
    std::string model;         ///< empty: equal layers
    double parameters = 7.5e9; ///< elements of all equal layers
    double layers = 72;        ///< equal layers, of one parameter each
    double ranks = 64;
    double accumulate_bytes = 0; ///< per gradient; 0: 4, a float, with a memory, otherwise 2
    double micro_steps = 1;

    double in_tree = 0;   ///< 1: TreeReduction
    double shard = 0;     ///< ranks of a group; 0: there are no groups
    double secondary = 0; ///< ranks that share a secondary copy; 0: there are none
    double adapters = 0;  ///< trainable elements beside a frozen model; 0: all are trainable
    Codes codes{};

    double offload_ratio = 0; ///< part of the states in a file
    double offload_chunk_bytes = 12 << 20;
    double offload_depth = 8; ///< chunks in staging memory
    double delayed = 0;       ///< 1: DelayedUpdate
    double on_host = 0;       ///< 1: states of a device on its host
    double tier_rate = 0;     ///< bytes per second; 0: no time is predicted

    // The network. Without a bandwidth no time is predicted.
    double latency = 0;           ///< seconds per message
    double bandwidth = 0;         ///< bytes per second that a rank reads
    double ranks_per_host = 0;    ///< 0: one level
    double latency_between = -1;  ///< seconds per message between hosts; -1: as inside
    double bandwidth_between = 0; ///< bytes per second that a host reads from others
    std::string algorithm = "ring";

    double memory = 0;     ///< bytes of a rank; 0: no choice is asked for
    bool has_json = false; ///< prints JSON

    bool asks_for_help = false; ///< nothing else was read then
};

/// An argument with a number.
struct NumberOption {
    char const* name;
    double Settings::*member;
    double least, most;
    bool is_whole;
};

inline constexpr NumberOption number_options[] = {
    {"--parameters", &Settings::parameters, 1, 1e15, true},
    {"--layers", &Settings::layers, 1, 1e5, true},
    {"--ranks", &Settings::ranks, 1, 1e5, true},
    {"--accumulate-bytes", &Settings::accumulate_bytes, 1, 8, true},
    {"--micro-steps", &Settings::micro_steps, 1, 1e3, true},
    {"--in-tree", &Settings::in_tree, 0, 1, true},
    {"--shard", &Settings::shard, 1, 1e5, true},
    {"--secondary", &Settings::secondary, 2, 1e5, true},
    {"--adapters", &Settings::adapters, 1, 1e15, true},
    {"--offload-ratio", &Settings::offload_ratio, 0, 1, false},
    {"--offload-chunk-bytes", &Settings::offload_chunk_bytes, 4096, 1e15, true},
    {"--offload-depth", &Settings::offload_depth, 1, 1e3, true},
    {"--delayed", &Settings::delayed, 0, 1, true},
    {"--on-host", &Settings::on_host, 0, 1, true},
    {"--tier-rate", &Settings::tier_rate, 1, 1e15, false},
    {"--latency", &Settings::latency, 0, 10, false},
    {"--bandwidth", &Settings::bandwidth, 1, 1e15, false},
    {"--ranks-per-host", &Settings::ranks_per_host, 1, 1e5, true},
    {"--latency-between", &Settings::latency_between, 0, 10, false},
    {"--bandwidth-between", &Settings::bandwidth_between, 1, 1e15, false}};

/// An argument with a codec.
struct CodecOption {
    char const* name;
    std::size_t Codes::*member;
    char const* other = nullptr; ///< what may stand in place of a codec
    std::size_t other_bytes = 0; ///< of 64 elements
};

inline constexpr CodecOption codec_options[] = {
    {"--wire", &Codes::weights},
    {"--wire-gradients", &Codes::gradients},
    {"--wire-between", &Codes::between, "plain", 0},
    {"--feedback", &Codes::errors, "float", 64 * sizeof(float)},
    {"--wire-frozen", &Codes::frozen}};

/// Reads a number with a unit of bytes, such as 80GB (10^9 bytes) or 80GiB (2^30 bytes).
/// @param per_second whether "/s" follows; then bits (Gb/s) are accepted as well
/// @throws zero::InvalidArgument naming the argument and the units
inline double read_bytes(std::string const& name, std::string const& text, bool per_second) {
    auto const refuse = [&](char const* why) {
        throw zero::InvalidArgument(name + " " + text + ": " + why
                                    + (per_second ? "; write it as 50GB/s, 50GiB/s or 400Gb/s"
                                                  : "; write it as 80GB (10^9 bytes each) or 80GiB "
                                                    "(2^30 bytes each)"));
    };
    char* end = nullptr;
    double const number = std::strtod(text.c_str(), &end);
    if (end == text.c_str()) refuse("it begins with no number");
    if (!(number > 0) || number > 1e15) refuse("it must be above 0 and finite");
    std::string_view unit(end);
    if (per_second) {
        if (!unit.ends_with("/s")) refuse("the unit ends with /s");
        unit.remove_suffix(2);
    }
    double factor = 1;
    constexpr std::string_view prefixes = "KMGTP";
    std::size_t const prefix = unit.empty() ? prefixes.npos : prefixes.find(unit.front());
    if (prefix != prefixes.npos) {
        unit.remove_prefix(1);
        bool const is_binary = unit.starts_with('i');
        unit.remove_prefix(is_binary ? 1 : 0);
        factor = std::pow(is_binary ? 1024.0 : 1000.0, static_cast<double>(prefix + 1));
    }
    if (per_second && unit == "b")
        factor /= 8;
    else if (unit != "B")
        refuse(unit.empty() ? "the unit has no B" : "the unit is not known");
    double const bytes = number * factor;
    if (bytes < 1 || bytes > 1e18) refuse("it is below 1 or above 10^18 bytes");
    return bytes;
}

/// @throws zero::InvalidArgument naming the argument and its range
inline void read_number(Settings& settings, std::string const& name, char const* text) {
    for (NumberOption const& option : number_options) {
        if (name != option.name) continue;
        char* end = nullptr;
        double const value = std::strtod(text, &end);
        bool const is_in_range = value >= option.least && value <= option.most;
        if (end == text || *end != '\0' || !is_in_range
            || (option.is_whole && value != std::floor(value))) {
            char range[64];
            std::snprintf(range, sizeof range, "number between %g and %g", option.least,
                          option.most);
            throw zero::InvalidArgument(name + " " + text + ": a "
                                        + (option.is_whole ? "whole " : "") + range);
        }
        settings.*option.member = value;
        return;
    }
    std::string known = "'" + name + "': give a name with --model, --algorithm";
    for (CodecOption const& option : codec_options) known += std::string(", ") + option.name;
    known += ", a number of bytes with --memory or --link, --json alone, or a number with";
    for (NumberOption const& option : number_options) known += std::string(" ") + option.name;
    throw zero::InvalidArgument(known);
}

/// Returns whether the argument is one with a codec, and reads it.
/// @throws zero::InvalidArgument naming the codecs
inline bool read_codec(Codes& codes, std::string const& name, std::string const& codec) {
    for (CodecOption const& option : codec_options) {
        if (name != option.name) continue;
        if (codec == "int8")
            codes.*option.member = zero::Int8Blocks::bytes_per_block;
        else if (codec == "int4")
            codes.*option.member = zero::Int4Blocks::bytes_per_block;
        else if (option.other != nullptr && codec == option.other)
            codes.*option.member = option.other_bytes;
        else
            throw zero::InvalidArgument(
                name + " " + codec + ": int8" + (option.other == nullptr ? " or " : ", ")
                + (option.other == nullptr ? "" : option.other + std::string(" or ")) + "int4");
        return true;
    }
    return false;
}

/// Completes codes and groups.
/// @param has_between whether codes between groups were given
/// @throws zero::InvalidArgument naming the argument and the remedy
inline void conclude_codes(Settings& settings, bool has_between) {
    Codes& codes = settings.codes;
    if (settings.shard != 0 && std::fmod(settings.ranks, settings.shard) != 0)
        throw zero::InvalidArgument("--shard must divide --ranks, into groups of equal size");
    if (has_between && settings.shard == 0)
        throw zero::InvalidArgument("--wire-between needs --shard: without it there is one group");
    if (has_between && codes.between == codes.gradients)
        throw zero::InvalidArgument("--wire-between is what --wire-gradients says: leave it out, "
                                    "or choose another codec");
    if (!has_between && settings.shard != 0) codes.between = codes.gradients;
    if (codes.errors != 0 && codes.gradients == 0)
        throw zero::InvalidArgument("--feedback needs --wire-gradients, whose errors it keeps");
    if (codes.frozen != 0 && settings.adapters == 0)
        throw zero::InvalidArgument("--wire-frozen needs --adapters: without them no parameter is "
                                    "frozen");
    if (settings.in_tree != 0 && (codes.gradients != 0 || settings.shard != 0))
        throw zero::InvalidArgument(
            "--in-tree excludes --wire-gradients and --shard, as an engine does");
}

/// @throws zero::InvalidArgument naming the argument and the remedy
inline Settings read_settings(int count, char** arguments) {
    Settings settings;
    bool has_size = false;
    bool has_network = false;
    bool has_between = false;
    for (int index = 1; index < count; index += 2) {
        std::string const name = arguments[index];
        if (name == "--json") {
            settings.has_json = true;
            --index; // it has no value
            continue;
        }
        if (name == "--help") {
            settings.asks_for_help = true;
            return settings;
        }
        if (index + 1 == count) throw zero::InvalidArgument("'" + name + "': a value is missing");
        has_size = has_size || name == "--parameters" || name == "--layers";
        has_between = has_between || name == "--wire-between";
        has_network = has_network || name == "--algorithm" || name == "--link"
                      || name == "--ranks-per-host" || name.starts_with("--latency")
                      || name.starts_with("--bandwidth");
        if (name == "--model")
            settings.model = arguments[index + 1];
        else if (name == "--algorithm")
            settings.algorithm = arguments[index + 1];
        else if (name == "--memory")
            settings.memory = read_bytes(name, arguments[index + 1], false);
        else if (name == "--link")
            settings.bandwidth = read_bytes(name, arguments[index + 1], true);
        else if (!read_codec(settings.codes, name, arguments[index + 1]))
            read_number(settings, name, arguments[index + 1]);
    }
    if (settings.delayed != 0 && settings.offload_ratio == 0)
        throw zero::InvalidArgument("--delayed needs --offload-ratio");
    if (settings.memory != 0
        && (settings.offload_ratio != 0 || settings.on_host != 0 || settings.in_tree != 0
            || settings.secondary != 0 || settings.shard != 0 || has_between
            || settings.codes != Codes{}))
        throw zero::InvalidArgument(
            "--memory chooses among stages and their options; leave out --offload-ratio, "
            "--on-host, --in-tree, --shard, --secondary, --feedback and --wire...");
    conclude_codes(settings, has_between);
    if (settings.tier_rate != 0 && settings.on_host == 0 && settings.offload_ratio == 0
        && settings.memory == 0)
        throw zero::InvalidArgument("--tier-rate needs --offload-ratio, --on-host or --memory");
    if (settings.on_host != 0 && settings.offload_ratio != 0)
        throw zero::InvalidArgument("--on-host excludes --offload-ratio: an engine has one tier");
    if (has_size && !settings.model.empty())
        throw zero::InvalidArgument("--model excludes --parameters and --layers");
    if (settings.layers > settings.parameters)
        throw zero::InvalidArgument("more --layers than --parameters");
    if (has_network && settings.bandwidth == 0)
        throw zero::InvalidArgument("a network needs its --bandwidth in bytes per second, such as "
                                    "25e9, or its --link, such as 25GB/s");
    if (settings.accumulate_bytes == 0) settings.accumulate_bytes = settings.memory != 0 ? 4 : 2;
    if (settings.memory != 0 && settings.accumulate_bytes != 2 && settings.accumulate_bytes != 4)
        throw zero::InvalidArgument(
            "--accumulate-bytes with --memory is 4 (float) or 2 (bfloat16)");
    if ((settings.ranks_per_host == 0) != (settings.bandwidth_between == 0))
        throw zero::InvalidArgument("hosts need both --ranks-per-host and --bandwidth-between");
    if (settings.ranks_per_host == 0
        && (settings.latency_between >= 0 || settings.algorithm != "ring"))
        throw zero::InvalidArgument("--latency-between and --algorithm need --ranks-per-host and "
                                    "--bandwidth-between");
    return settings;
}

/// Returns the network, if one is given.
/// @throws zero::InvalidArgument if the algorithm is not known
inline std::optional<zero::CommunicationModel> network_of(Settings const& settings) {
    if (settings.bandwidth == 0) return std::nullopt;
    zero::NetworkLevel const inside{settings.latency, settings.bandwidth};
    if (settings.ranks_per_host == 0) return zero::CommunicationModel(inside);
    zero::NetworkLevel const between{settings.latency_between < 0 ? settings.latency
                                                                  : settings.latency_between,
                                     settings.bandwidth_between};
    for (auto const algorithm : {zero::CollectiveAlgorithm::ring, zero::CollectiveAlgorithm::direct,
                                 zero::CollectiveAlgorithm::hierarchical}) {
        if (settings.algorithm == zero::name_of(algorithm))
            return zero::CommunicationModel(
                inside, between, static_cast<std::size_t>(settings.ranks_per_host), algorithm);
    }
    throw zero::InvalidArgument("--algorithm " + settings.algorithm
                                + ": known are ring, direct and hierarchical");
}

} // namespace planner
