#pragma once

// One case of the oracle, as plain values that are the same for every stage. This header does not
// depend on the library.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zero::test::oracle {

enum class Number { float32, bfloat16, float16 };
enum class Partition { contiguous, round_robin, whole_group, dealt_group, per_tensor, balanced };
enum class Bucketing { size_capped, unit, single, parameter };
enum class Scaler { none, fixed, dynamic };
enum class Rule {
    adamw,
    sgd,
    products ///< a custom functor that adds products, of scalars as well
};
enum class Master { none, floats, float16, split, stochastic };
enum class Code { plain, int8, int4 };          ///< how gradients and weights travel
enum class Errors { none, floats, eight_bits }; ///< what `ErrorFeedback` keeps, and how
enum class States { floats, bfloat16, scaled, scaled_to_nearest, eight_bits };

/// The choices that are fixed at compile time: the policies of a stage.
struct Row {
    char const* name;
    Number parameter;
    Number gradient;
    Number communication;
    Number accumulation;
    Partition partition;
    Bucketing bucketing;
    Scaler scaler;
    Rule rule;
    Master master;
    States states = States::floats;
    bool has_floats =
        /// Some parameters are float instead, with float gradients and no master weights.
        false;
};

/// The number types of one parameter.
struct Numbers {
    Number parameter;
    Number gradient;
    Number communication;
    Number accumulation;
    Master master;
};

/// The generator leaves out the last row, which the tests of mutants use.
inline constexpr std::array<Row, 27> rows{{
    {"float, size-capped, AdamW", Number::float32, Number::float32, Number::float32,
     Number::float32, Partition::contiguous, Bucketing::size_capped, Scaler::none, Rule::adamw,
     Master::none},
    {"float, round-robin, size-capped, SGD", Number::float32, Number::float32, Number::float32,
     Number::float32, Partition::round_robin, Bucketing::size_capped, Scaler::none, Rule::sgd,
     Master::none},
    {"float, single, static scale", Number::float32, Number::float32, Number::float32,
     Number::float32, Partition::contiguous, Bucketing::single, Scaler::fixed, Rule::adamw,
     Master::none},
    {"bfloat16, size-capped, AdamW", Number::bfloat16, Number::bfloat16, Number::bfloat16,
     Number::float32, Partition::contiguous, Bucketing::size_capped, Scaler::none, Rule::adamw,
     Master::floats},
    {"bfloat16, float gradients, round-robin, size-capped", Number::bfloat16, Number::float32,
     Number::float32, Number::float32, Partition::round_robin, Bucketing::size_capped, Scaler::none,
     Rule::adamw, Master::floats},
    {"bfloat16, float gradients, bfloat16 wire, unit, dynamic scale", Number::bfloat16,
     Number::float32, Number::bfloat16, Number::float32, Partition::contiguous, Bucketing::unit,
     Scaler::dynamic, Rule::adamw, Master::floats},
    {"bfloat16 accumulation, size-capped, static scale, SGD", Number::bfloat16, Number::bfloat16,
     Number::bfloat16, Number::bfloat16, Partition::contiguous, Bucketing::size_capped,
     Scaler::fixed, Rule::sgd, Master::floats},
    {"bfloat16 without master, unit, SGD", Number::bfloat16, Number::bfloat16, Number::bfloat16,
     Number::float32, Partition::contiguous, Bucketing::unit, Scaler::none, Rule::sgd,
     Master::none},
    {"bfloat16, float wire, round-robin, single", Number::bfloat16, Number::bfloat16,
     Number::float32, Number::float32, Partition::round_robin, Bucketing::single, Scaler::none,
     Rule::adamw, Master::floats},
    {"float16, size-capped, dynamic scale", Number::float16, Number::float16, Number::float16,
     Number::float32, Partition::contiguous, Bucketing::size_capped, Scaler::dynamic, Rule::adamw,
     Master::floats},
    {"float16, round-robin, unit, dynamic scale, SGD", Number::float16, Number::float16,
     Number::float16, Number::float32, Partition::round_robin, Bucketing::unit, Scaler::dynamic,
     Rule::sgd, Master::floats},
    {"float16, float gradients, float16 wire, single, static scale", Number::float16,
     Number::float32, Number::float16, Number::float32, Partition::contiguous, Bucketing::single,
     Scaler::fixed, Rule::adamw, Master::floats},
    {"float, float16 wire, size-capped, custom functor", Number::float32, Number::float32,
     Number::float16, Number::float32, Partition::contiguous, Bucketing::size_capped, Scaler::none,
     Rule::products, Master::none},
    {"float, bfloat16 wire and accumulation, round-robin, unit", Number::float32, Number::float32,
     Number::bfloat16, Number::bfloat16, Partition::round_robin, Bucketing::unit, Scaler::none,
     Rule::adamw, Master::none},
    {"float, bfloat16 gradients, contiguous, unit, dynamic scale", Number::float32,
     Number::bfloat16, Number::bfloat16, Number::float32, Partition::contiguous, Bucketing::unit,
     Scaler::dynamic, Rule::adamw, Master::none},
    {"bfloat16, float wire, float16 accumulation, size-capped, dynamic scale", Number::bfloat16,
     Number::bfloat16, Number::float32, Number::float16, Partition::contiguous,
     Bucketing::size_capped, Scaler::dynamic, Rule::adamw, Master::floats},
    {"float, balanced, parameter buckets", Number::float32, Number::float32, Number::float32,
     Number::float32, Partition::balanced, Bucketing::parameter, Scaler::none, Rule::adamw,
     Master::none},
    {"bfloat16, whole group, size-capped", Number::bfloat16, Number::bfloat16, Number::bfloat16,
     Number::float32, Partition::whole_group, Bucketing::size_capped, Scaler::none, Rule::adamw,
     Master::floats},
    {"float16, dealt group, unit, dynamic scale, SGD", Number::float16, Number::float16,
     Number::float16, Number::float32, Partition::dealt_group, Bucketing::unit, Scaler::dynamic,
     Rule::sgd, Master::floats},
    {"bfloat16, float gradients, 8-bit states, per tensor, static scale", Number::bfloat16,
     Number::float32, Number::float32, Number::float32, Partition::per_tensor, Bucketing::parameter,
     Scaler::fixed, Rule::adamw, Master::floats, States::eight_bits},
    {"bfloat16, split master, size-capped", Number::bfloat16, Number::bfloat16, Number::bfloat16,
     Number::float32, Partition::contiguous, Bucketing::size_capped, Scaler::none, Rule::adamw,
     Master::split},
    {"bfloat16, stochastic rounding, bfloat16 states, round-robin, unit", Number::bfloat16,
     Number::bfloat16, Number::bfloat16, Number::float32, Partition::round_robin, Bucketing::unit,
     Scaler::none, Rule::adamw, Master::stochastic, States::bfloat16},
    {"bfloat16, float16 master, float gradients, size-capped, static scale, SGD", Number::bfloat16,
     Number::float32, Number::float32, Number::float32, Partition::contiguous,
     Bucketing::size_capped, Scaler::fixed, Rule::sgd, Master::float16},
    {"float, scaled states, size-capped", Number::float32, Number::float32, Number::float32,
     Number::float32, Partition::contiguous, Bucketing::size_capped, Scaler::none, Rule::adamw,
     Master::none, States::scaled},
    {"bfloat16, split master, scaled states to nearest, balanced, size-capped, dynamic scale",
     Number::bfloat16, Number::bfloat16, Number::float32, Number::float32, Partition::balanced,
     Bucketing::size_capped, Scaler::dynamic, Rule::adamw, Master::split,
     States::scaled_to_nearest},
    {"bfloat16 and float, split master, size-capped", Number::bfloat16, Number::bfloat16,
     Number::bfloat16, Number::float32, Partition::contiguous, Bucketing::size_capped, Scaler::none,
     Rule::adamw, Master::split, States::floats, true},
    {"float, size-capped, dynamic scale", Number::float32, Number::float32, Number::float32,
     Number::float32, Partition::contiguous, Bucketing::size_capped, Scaler::dynamic, Rule::adamw,
     Master::none},
}};
inline constexpr std::size_t mutant_row = rows.size() - 1;
inline constexpr std::size_t generated_rows = rows.size() - 1;

enum class Schedule { boundary, every_micro_step };
enum class Combine { mean, sum, mean_over_ranks };
enum class Compute { inline_queue, threaded, delaying };
enum class Communication { own, inline_queue, threaded, delaying };
enum class Memory { owned, adopted, scattered };
enum class GradientMemory { engine, caller_owned, handed_over, mixed };
/// The order of the units in the backward pass.
enum class Order {
    reverse,
    shuffled, ///< drawn for each micro-step and rank
    fixed     ///< drawn once, the same everywhere
};
enum class MicroSteps { range, announced, unannounced };
enum class OnNonFinite { skip, step };
enum class Poisoned { infinity, negative_infinity, nan };

struct Shape {
    std::size_t elements = 0;
    std::vector<std::size_t> units{0}; ///< ascending; a parameter of several units is tied
    std::size_t group = 0;
    bool trainable = true;
    std::size_t address = 0; ///< first element inside the adopted block
    bool is_float = false;   ///< whether it has the second parameter type
    std::size_t tile = 0;    ///< its number, if it is a tile of a parameter
    std::size_t tiles = 1;   ///< number of tiles of that parameter
};

/// Where a parameter of a part begins in the whole model.
struct Place {
    std::size_t parameter = 0; ///< its number there
    std::size_t begin = 0;     ///< its first element
    bool is_replica = false;   ///< whether other parts hold it as well
};

/// The hyper-parameters of one parameter group, for any optimizer.
struct Hyper {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double momentum = 0.9;
    bool nesterov = false;
    double weight_decay = 0.01;
    double learning_rate_factor = 1.0;
};

struct ScalerRule {
    float initial = 65536.0F;
    double growth = 2.0;
    double backoff = 0.5;
    std::uint32_t interval = 2;
    std::uint32_t hysteresis = 1;
    bool is_consecutive = false;
    float minimum = 1.0F;
    float maximum = 16777216.0F;
};

/// A non-finite gradient element on one rank.
struct Injection {
    std::size_t step = 0;
    std::size_t micro_step = 0;
    std::size_t rank = 0;
    std::size_t parameter = 0;
    std::size_t element = 0;
    Poisoned value = Poisoned::nan;
};

/// A call of `set_learning_rate`: the factor of a group from this step on.
struct FactorChange {
    std::size_t step = 0;
    std::size_t group = 0;
    double factor = 1.0;
};

struct Configuration {
    std::uint64_t seed = 0;
    std::size_t index = 0;
    std::size_t row = 0;

    std::size_t world = 1;
    std::size_t shard = 0;            ///< ranks of a shard group of `Groups`; 0: no groups
    bool sends_float_between = false; ///< `HybridInFloat`
    std::size_t secondary = 0;        ///< ranks that share a secondary copy; 0: there are none
    std::size_t parts = 0;            ///< ranks that hold one copy of the model; 0: it is not cut
    bool has_experts = false;         ///< parts hold experts, and have data of their own
    std::vector<Place> places;        ///< of the parameters of a part; empty: a whole model
    std::optional<std::size_t> used;  ///< of a part: `always_used_unit` of the whole model
    std::size_t cap_elements = 64;    ///< capacity of a bucket
    std::vector<Shape> shapes;        ///< in registration order
    std::size_t units = 1;
    std::size_t block_elements = 0; ///< elements of the whole adopted block
    bool has_aligned_block =
        true; ///< every parameter of an adopted block starts at a multiple of 64 elements

    Schedule schedule = Schedule::boundary;
    Combine combine = Combine::mean;
    std::optional<float> predivide;
    Code code = Code::plain;
    Code between = Code::plain; ///< of the sums of groups
    Code weights = Code::plain; ///< of trainable parameters
    Code frozen = Code::plain;  ///< of the others
    Errors errors = Errors::none;
    float beta = 0.0F;
    std::size_t reset_every = 1;
    std::vector<double> shares; ///< of `ProportionalPartitioner`
    std::size_t steps = 5;      ///< each is followed by a wait and a comparison
    std::size_t free_steps = 2; ///< follow without a wait, and are compared at the end
    std::size_t micro_steps = 1;
    bool has_varying_micro_steps = false;
    bool promises_one = false; ///< the options say that every step has one micro-step
    MicroSteps micro_step_calls = MicroSteps::range;

    Compute compute = Compute::inline_queue;
    Communication communication = Communication::own;
    Memory memory = Memory::owned;
    GradientMemory gradient_memory = GradientMemory::engine;
    bool has_gradient_block = false; ///< caller-owned gradients are in a block like the adopted
                                     ///< one, at the same offsets
    std::size_t wire_elements = std::size_t{1} << 20U; ///< capacity of the wire buffer
    bool writes_all =
        /// Some units take uninitialised gradients and write every element.
        false;
    Order order = Order::reverse;
    std::size_t extra_leases = 0;
    bool rebuilds = false; ///< buckets are rebuilt after the first step
    std::size_t leases_until_rebuild = 0;
    bool has_unused = false;    ///< some units have no gradient on some ranks in some micro-steps
    bool reports_unused = true; ///< unused units call `gradients_ready`; in stage 3 they always do
    /// The weights of a unit are released after the next unit is acquired.
    bool holds_handles = false;
    bool evaluates =
        /// Weights are also read between the last micro-step and `step`, and between steps.
        false;
    bool evaluates_elsewhere = false; ///< evaluation has a queue of its own
    bool is_poisoned = false;
    bool prefetches = true;
    std::optional<std::size_t> prefetch_elements; ///< if it prefetches; empty: one unit
    std::size_t persistence_threshold = 0;
    std::size_t max_persistent_elements = ~std::size_t{0};
    std::optional<std::size_t> max_reuse_distance;
    std::size_t kept_units = 0; ///< units kept after the forward pass; above `units`: all
    std::size_t keep_until_update = 0;
    bool gathers_apart = false; ///< gathers have a communicator of their own, if it can be split
    bool limits_live = false;   ///< at most about one unit is gathered at once
    std::size_t update_tile_elements = 0;
    bool cancels = false;           ///< one step is cancelled in its backward pass and repeated
    bool fills_by_function = false; ///< initial values come from `initialise`
    std::optional<std::size_t>
        /// A unit whose weights are never acquired inside a step.
        never_acquired;
    std::optional<std::size_t>
        delayed_rank; ///< the only rank whose delaying queues delay; empty: all
    unsigned longest_delay =
        60; ///< longest delay of a command on a delaying queue, in microseconds

    std::optional<float> clip;
    std::optional<float> norm_limit;  ///< steps above this norm are skipped
    std::optional<float> norm_factor; ///< steps above this multiple of the running norm as well
    std::size_t norm_window = 2;      ///< steps of the running norm
    OnNonFinite on_non_finite = OnNonFinite::skip;
    bool reports_zeros = false;
    bool reports_groups = false;
    float fixed_scale = 1024.0F;
    ScalerRule scaler;
    std::vector<Injection> injections;
    std::vector<Hyper> groups{Hyper{}};
    bool lists_groups = false; ///< if false, all groups have the hyper-parameters of the first
    std::vector<FactorChange> changes;
    double learning_rate = 1e-2;
    int gradient_exponent = -12; ///< gradients are about 2^gradient_exponent

    [[nodiscard]] Row const& types() const { return rows[row]; }
    [[nodiscard]] Numbers numbers(std::size_t parameter) const {
        Row const& r = types();
        return shapes[parameter].is_float
                   ? Numbers{Number::float32, Number::float32, Number::float32, Number::float32,
                             Master::none}
                   : Numbers{r.parameter, r.gradient, r.communication, r.accumulation, r.master};
    }
    [[nodiscard]] std::size_t all_steps() const { return steps + free_steps; }
    /// Returns the number of ranks with data of their own.
    [[nodiscard]] std::size_t data_ranks() const { return has_experts ? world * parts : world; }
    [[nodiscard]] Place place(std::size_t parameter) const {
        return places.empty() ? Place{parameter} : places[parameter];
    }
};

/// Mixes 64 bits: the output function of SplitMix64.
constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
}

/// Whether a block of 64 states shares a scale.
inline bool has_scaled_states(Configuration const& c) {
    return c.types().states != States::floats && c.types().states != States::bfloat16;
}

/// Returns a random number that depends only on the keys, with every compiler and standard library.
template <class... Keys>
constexpr std::uint64_t keyed(std::uint64_t seed, Keys... keys) noexcept {
    std::uint64_t state = mixed(seed);
    ((state = mixed(state ^ (static_cast<std::uint64_t>(keys) * 0xd6e8feb86659fd93U))), ...);
    return state;
}

/// Independent streams of random numbers.
enum class Stream : std::uint64_t {
    configuration,
    initial,
    gradient,
    unused,
    order,
    writes_all,
    memory,
    parts
};

// --- The behaviour of the model, as pure functions of the configuration. ---

inline std::size_t micro_steps_of(Configuration const& c, std::size_t step) {
    return c.has_varying_micro_steps ? 1 + (c.micro_steps + step) % 3 : c.micro_steps;
}

inline double learning_rate_of(Configuration const& c, std::size_t step) {
    return c.learning_rate / (1.0 + 0.25 * static_cast<double>(step));
}

/// Returns a unit with a gradient, which rank 0 gives in the first micro-step of every step: a step
/// without any gradient throws. The number of units if there is none.
inline std::size_t always_used_unit(Configuration const& c) {
    if (c.used) {
        return *c.used;
    }
    for (Shape const& shape : c.shapes) {
        if (shape.trainable && shape.elements != 0) {
            return shape.units.front();
        }
    }
    return c.units;
}

inline bool is_unused(Configuration const& c, std::size_t step, std::size_t micro_step,
                      std::size_t rank, std::size_t unit) {
    if (!c.has_unused || (micro_step == 0 && rank == 0 && unit == always_used_unit(c))) {
        return false;
    }
    bool const is_unused_by_all =
        keyed(c.seed, c.index, Stream::unused, step, micro_step, 1000, unit) % 8 == 0;
    return is_unused_by_all
           || keyed(c.seed, c.index, Stream::unused, step, micro_step, rank, unit) % 4 == 0;
}

/// Returns whether the unit takes uninitialised gradients. The first unit that writes a gradient in
/// a micro-step then assigns instead of adding.
inline bool writes_all(Configuration const& c, std::size_t unit) {
    return c.writes_all && keyed(c.seed, c.index, Stream::writes_all, unit) % 3 != 0;
}

inline GradientMemory gradient_memory_of(Configuration const& c, std::size_t parameter) {
    if (c.gradient_memory != GradientMemory::mixed) {
        return c.gradient_memory;
    }
    bool const is_adopted =
        c.memory
        // The engine's memory for a parameter of an adopted block may not be contiguous.
        == Memory::adopted;
    constexpr std::array<GradientMemory, 3> kinds{
        GradientMemory::caller_owned, GradientMemory::handed_over, GradientMemory::engine};
    return kinds[keyed(c.seed, c.index, Stream::memory, parameter) % (is_adopted ? 2 : 3)];
}

/// Returns the order in which units finish their backward pass. Where all ranks must use one order,
/// pass rank 0.
inline std::vector<std::size_t> backward_order(Configuration const& c, std::size_t step,
                                               std::size_t micro_step, std::size_t rank) {
    std::vector<std::size_t> order;
    for (std::size_t unit = c.units; unit-- > 0;) {
        order.push_back(unit);
    }
    bool const is_fixed = c.order == Order::fixed;
    for (std::size_t left = order.size(); c.order != Order::reverse && left > 1; --left) {
        std::uint64_t const bits =
            is_fixed ? keyed(c.seed, c.index, Stream::order, left)
                     : keyed(c.seed, c.index, Stream::order, step, micro_step, rank, left);
        auto const other = static_cast<std::size_t>(bits % left);
        std::size_t const unit = order[other];
        order[other] = order[left - 1];
        order[left - 1] = unit;
    }
    return order;
}

// --- Description in one line. ---

template <std::size_t N, class Value>
char const* word(std::array<char const*, N> const& words, Value value) {
    return words[static_cast<std::size_t>(value)];
}

inline std::string describe(Configuration const& c) {
    std::string text = "configuration " + std::to_string(c.index) + " of seed "
                       + std::to_string(c.seed) + ": [" + c.types().name
                       + "] W=" + std::to_string(c.world)
                       + (c.shard == 0 ? "" : " G=" + std::to_string(c.shard))
                       + (c.secondary == 0 ? "" : " k=" + std::to_string(c.secondary))
                       + (c.parts == 0 ? "" : " parts=" + std::to_string(c.parts))
                       + " cap=" + std::to_string(c.cap_elements) + " parameters=";
    for (auto const& shape : c.shapes) {
        text += std::to_string(shape.elements) + (shape.trainable ? "" : "f")
                + (shape.is_float ? "float" : "")
                + (shape.tiles == 1
                       ? ""
                       : "[" + std::to_string(shape.tile) + "/" + std::to_string(shape.tiles) + "]")
                + "@";
        for (std::size_t i = 0; i < shape.units.size(); ++i) {
            text += (i == 0 ? "" : "+") + std::to_string(shape.units[i]);
        }
        text += " ";
    }
    text += word(std::array{"boundary", "every-micro-step"}, c.schedule);
    text += word(std::array{" mean", " sum", " mean over ranks"}, c.combine);
    text += c.predivide ? " predivide=" + std::to_string(*c.predivide) : "";
    text += " micro-steps=" + std::to_string(c.micro_steps)
            + (c.has_varying_micro_steps ? "(varying) "
               : c.promises_one          ? "(promised) "
                                         : " ");
    text += word(std::array{"range", "announced", "unannounced"}, c.micro_step_calls);
    text +=
        word(std::array{" compute=inline", " compute=threaded", " compute=delaying"}, c.compute);
    text += word(std::array{" communication=own", " communication=inline",
                            " communication=threaded", " communication=delaying"},
                 c.communication);
    text += word(std::array{" owned", " adopted", " scattered"}, c.memory);
    text += c.memory == Memory::adopted ? (c.has_aligned_block ? "(aligned)" : "(unaligned)") : "";
    text += word(std::array{" gradients=engine", " gradients=caller-owned",
                            " gradients=handed-over", " gradients=mixed"},
                 c.gradient_memory);
    text += c.has_gradient_block ? "(block)" : "";
    text += " wire=" + std::to_string(c.wire_elements);
    text += word(std::array{" order=reverse", " order=shuffled", " order=fixed"}, c.order);
    text +=
        std::string(c.writes_all ? " writes-all" : "")
        + (c.has_unused ? c.reports_unused ? " unused(reported)" : " unused(not reported)" : "")
        + (c.holds_handles ? " holds" : "") + (c.evaluates ? " evaluates" : "")
        + (c.evaluates_elsewhere ? "-elsewhere" : "") + (c.is_poisoned ? " poison" : "")
        + (c.prefetches ? " prefetch" : "")
        + (c.prefetch_elements ? "=" + std::to_string(*c.prefetch_elements) : "")
        + (c.persistence_threshold == 0 ? ""
                                        : " persistent=" + std::to_string(c.persistence_threshold))
        + (c.max_reuse_distance ? " reuse=" + std::to_string(*c.max_reuse_distance) : "")
        + (c.kept_units == 0 ? "" : " kept=" + std::to_string(c.kept_units))
        + (c.keep_until_update == 0 ? "" : " kept-until=" + std::to_string(c.keep_until_update))
        + (c.gathers_apart ? " apart" : "") + (c.limits_live ? " limited" : "")
        + (c.update_tile_elements == 0 ? "" : " tiles=" + std::to_string(c.update_tile_elements))
        + (c.cancels ? " cancels" : "") + (c.fills_by_function ? " initialise" : "")
        + (c.rebuilds ? " rebuilds" : "");
    text += c.clip ? " clip=" + std::to_string(*c.clip) : "";
    text += c.norm_limit ? " norm-limit=" + std::to_string(*c.norm_limit) : "";
    text += c.norm_factor ? " norm-factor=" + std::to_string(*c.norm_factor) + "/"
                                + std::to_string(c.norm_window)
                          : "";
    text += c.types().scaler == Scaler::none
                ? word(std::array{" non-finite=skip", " non-finite=step"}, c.on_non_finite)
                : "";
    text += c.reports_zeros ? " zeros" : "";
    text += c.reports_groups ? " group-norms" : "";
    text += " injections=" + std::to_string(c.injections.size())
            + " groups=" + std::to_string(c.groups.size()) + (c.lists_groups ? "(listed)" : "");
    return text;
}

} // namespace zero::test::oracle
