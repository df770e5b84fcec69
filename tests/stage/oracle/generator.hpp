#pragma once

// Random configurations: a pure function of seed and index, the same with every compiler and
// standard library.

#include "configuration.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace zero::test::oracle {

class Random {
public:
    Random(std::uint64_t seed, std::size_t index)
        : _state(keyed(seed, Stream::configuration, index)) {}

    std::uint64_t next() { return _state = mixed(_state); }
    std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() >> 8U) % bound; }
    std::size_t between(std::size_t low, std::size_t high) { return low + below(high - low + 1); }
    bool chance(std::size_t percent) { return below(100) < percent; }

    template <class T, std::size_t N>
    T pick(std::array<T, N> const& choices) {
        return choices[below(N)];
    }

private:
    std::uint64_t _state;
};

inline constexpr std::array<std::size_t, 12> primes{2,  3,   5,   7,   31,  61,
                                                    67, 101, 127, 257, 509, 1021};

/// Gives the whole model fewer elements than there are ranks.
inline void shape_tiny_model(Random& random, Configuration& c) {
    c.world = std::max<std::size_t>(c.world, 2);
    c.units = random.between(1, 3);
    std::size_t left = c.world - 1;
    for (std::size_t unit = 0; unit < c.units; ++unit) {
        std::size_t const elements = unit + 1 == c.units ? left : random.below(left + 1);
        c.shapes.push_back({elements, {unit}, 0, true, 0});
        left -= elements;
    }
}

inline std::size_t random_size(Random& random, std::size_t cap) {
    std::size_t const near_cap = std::min<std::size_t>(cap, 1024);
    switch (random.below(12)) {
    case 0: return 0;
    case 1: return 1;
    case 2:
    case 3: return random.pick(primes);
    case 4: return near_cap - 1;
    case 5: return near_cap;
    case 6: return near_cap + 1;
    case 7: return random.pick(std::array<std::size_t, 3>{63, 64, 65});
    case 8: return random.between(1, 64);
    case 9: return random.between(700, 1600);
    default: return random.between(65, 400);
    }
}

inline void shape_model(Random& random, Configuration& c) {
    c.units = random.between(1, 5);
    if (keyed(c.seed, c.index, 40) % 100 < 7) { // keyed, so the other models stay as they were
        c.units = 6 + static_cast<std::size_t>(keyed(c.seed, c.index, 41) % 35);
    }
    bool const has_frozen = random.chance(35);
    bool const has_tied = random.chance(40) && c.units > 1;
    std::size_t total = 0;
    for (std::size_t unit = 0; unit < c.units; ++unit) {
        // Any unit but the last may have no parameters.
        std::size_t const count =
            random.chance(8) && unit + 1 != c.units ? 0 : random.between(1, 3);
        for (std::size_t i = 0; i < count; ++i) {
            std::size_t const elements =
                total < 3500 ? random_size(random, c.cap_elements) : random.between(0, 65);
            total += elements;
            Shape shape{elements, {unit}, 0, !(has_frozen && random.chance(30)), 0};
            if (has_tied && shape.trainable && random.chance(40)) {
                std::size_t const other = random.below(c.units);
                if (other > unit) {
                    shape.units.push_back(other);
                    // Three floats do not add up to the same sum in every order, so only a fixed
                    // backward order allows a third use.
                    if (c.order == Order::reverse && other + 1 < c.units) {
                        shape.units.push_back(c.units - 1);
                    }
                }
            }
            c.shapes.push_back(shape);
        }
    }
}

/// Chooses addresses inside one block, in any order, with or without gaps.
inline void place_in_block(Random& random, Configuration& c) {
    c.has_aligned_block = random.chance(50);
    bool const has_gaps = random.chance(50);
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < c.shapes.size(); ++i) {
        order.push_back(i);
    }
    for (std::size_t left = order.size(); random.chance(50) && left > 1; --left) {
        std::swap(order[random.below(left)], order[left - 1]);
    }
    std::size_t end = has_gaps ? random.below(200) : 0;
    for (std::size_t const parameter : order) {
        end = c.has_aligned_block ? (end + 63) / 64 * 64 : end;
        c.shapes[parameter].address = end;
        end += c.shapes[parameter].elements;
        end += has_gaps && random.chance(30) ? random.below(150) : 0;
    }
    c.block_elements = end + 1;
}

inline void add_injections(Random& random, Configuration& c) {
    std::vector<std::size_t> targets;
    for (std::size_t parameter = 0; parameter < c.shapes.size(); ++parameter) {
        if (c.shapes[parameter].trainable && c.shapes[parameter].elements != 0) {
            targets.push_back(parameter);
        }
    }
    if (targets.empty() || !random.chance(45)) {
        return;
    }
    std::size_t const count = random.between(1, 3);
    for (std::size_t i = 0; i < count; ++i) {
        Injection injection;
        // With `NonFinite::step` every later number is non-finite. Late injections leave steps to
        // compare.
        injection.step = c.types().scaler == Scaler::none && c.on_non_finite == OnNonFinite::step
                             ? random.between(3, c.all_steps() - 1)
                             : random.below(c.all_steps());
        injection.micro_step = random.below(micro_steps_of(c, injection.step));
        injection.rank = random.below(c.world);
        injection.parameter = targets[random.below(targets.size())];
        injection.element = random.chance(30)
                                ? c.shapes[injection.parameter].elements - 1
                                : random.below(c.shapes[injection.parameter].elements);
        injection.value =
            random.pick(std::array{Poisoned::infinity, Poisoned::negative_infinity, Poisoned::nan});
        c.injections.push_back(injection);
    }
}

inline void choose_numbers(Random& random, Configuration& c) {
    c.schedule = random.chance(50) ? Schedule::boundary : Schedule::every_micro_step;
    c.combine = random.chance(65) ? Combine::mean : Combine::sum;
    if (random.chance(15)) {
        c.predivide = random.pick(std::array{0.5F, 2.0F, 3.0F, 4.0F});
    }
    c.micro_steps = random.between(1, 4);
    c.has_varying_micro_steps = random.chance(15);
    c.micro_step_calls =
        random.pick(std::array{MicroSteps::range, MicroSteps::announced, MicroSteps::unannounced});
    c.on_non_finite = random.chance(60) ? OnNonFinite::skip : OnNonFinite::step;
    c.fixed_scale = random.pick(std::array{1.0F, 1024.0F, 1000.0F, 65536.0F});
    c.scaler.minimum = random.pick(std::array{1.0F, 16.0F, 4096.0F});
    c.scaler.initial = random.pick(std::array{4096.0F, 65536.0F, 1048576.0F});
    c.scaler.maximum = std::max(c.scaler.initial, random.pick(std::array{65536.0F, 16777216.0F}));
    c.scaler.interval = static_cast<std::uint32_t>(random.between(1, 3));
    c.scaler.hysteresis = static_cast<std::uint32_t>(random.between(1, 3));
    c.scaler.is_consecutive = random.chance(40);
    c.scaler.growth = random.chance(80) ? 2.0 : 1.7;
    c.scaler.backoff = random.chance(80) ? 0.5 : 0.7;
    c.gradient_exponent = static_cast<int>(random.between(0, 6)) - 14;
    if (random.chance(50)) {
        c.clip = random.pick(std::array{1e-4F, 0.01F, 1.0F, 1e6F});
    }
    std::size_t const groups =
        std::min(random.between(1, 3), std::max(c.shapes.size(), std::size_t{1}));
    c.lists_groups = groups > 1 || random.chance(30);
    c.groups.clear();
    for (std::size_t group = 0; group < groups; ++group) {
        Hyper hyper;
        hyper.beta1 = random.pick(std::array{0.9, 0.8, 0.0});
        hyper.beta2 = random.pick(std::array{0.999, 0.95});
        hyper.epsilon = random.pick(std::array{1e-8, 1e-6});
        hyper.momentum = random.pick(std::array{0.9, 0.5, 0.0});
        hyper.nesterov = random.chance(30);
        hyper.weight_decay = random.pick(std::array{0.0, 0.01, 0.1});
        hyper.learning_rate_factor = random.pick(std::array{1.0, 0.5, 0.1, 0.0});
        c.groups.push_back(hyper);
    }
    if (random.chance(30)) {
        c.changes.push_back({random.between(1, c.steps - 1), random.below(groups),
                             random.pick(std::array{0.25, 2.0})});
    }
    for (auto& shape : c.shapes) {
        shape.group = random.below(groups);
    }
    for (std::size_t group = 0; group < groups && !c.shapes.empty(); ++group) {
        c.shapes[(c.shapes.size() / 2 + group) % c.shapes.size()].group = group;
    }
}

inline void choose_calls(Random& random, Configuration& c) {
    c.compute = random.pick(
        std::array{Compute::inline_queue, Compute::threaded, Compute::delaying, Compute::delaying});
    c.communication =
        random.pick(std::array{Communication::own, Communication::own, Communication::inline_queue,
                               Communication::threaded, Communication::delaying});
    std::size_t const memory = random.below(100);
    c.memory = memory < 60 ? Memory::owned : memory < 80 ? Memory::scattered : Memory::adopted;
    // In an adopted block the blocks of scaled states start with the slices, and the oracle has no
    // slices.
    bool const cuts_blocks = has_scaled_states(c);
    if (c.memory == Memory::adopted
        && (c.types().partition != Partition::contiguous || cuts_blocks || c.types().has_floats)) {
        c.memory = Memory::scattered;
    }
    if (c.memory == Memory::adopted) {
        place_in_block(random, c);
    }
    c.gradient_memory = random.pick(std::array{GradientMemory::engine, GradientMemory::engine,
                                               GradientMemory::caller_owned,
                                               GradientMemory::handed_over, GradientMemory::mixed});
    if (c.memory == Memory::adopted && c.gradient_memory == GradientMemory::engine) {
        c.gradient_memory =
            random.chance(50) ? GradientMemory::caller_owned : GradientMemory::handed_over;
    }
    c.writes_all = random.chance(20);
    c.has_unused = random.chance(35);
    c.reports_unused = random.chance(40);
    bool const needs_leases =
        c.order == Order::shuffled
        || (c.has_unused
            // Buckets that no rank reports stay leased, and later ones would wait for them.
            && !c.reports_unused);
    c.extra_leases = needs_leases ? 64 : random.chance(20) ? 1 : 0;
    c.holds_handles = random.chance(25);
    c.evaluates = random.chance(40);
    c.evaluates_elsewhere = c.evaluates && random.chance(50);
    c.is_poisoned = random.chance(50);
    c.prefetches = random.chance(60);
    c.cancels = random.chance(15);
    c.fills_by_function = c.memory == Memory::owned && random.chance(25);
}

/// Chooses whether buckets are rebuilt. With one fixed backward order, the counted leases suffice
/// after the first step, so no extra ones are needed.
inline void choose_rebuild(Random& random, Configuration& c) {
    c.rebuilds = c.memory != Memory::adopted && random.chance(50);
    bool const reports_all = !c.has_unused || c.reports_unused;
    if (c.rebuilds && c.order == Order::shuffled && reports_all && random.chance(60)) {
        c.order = Order::fixed;
        c.leases_until_rebuild = std::exchange(c.extra_leases, 0);
    }
}

/// Chooses when stage 3 gathers units and how long it keeps them.
inline void choose_gathering(Random& random, Configuration& c) {
    constexpr std::array<std::size_t, 5> distances{0, 64, 640, 2048, 1U << 20U};
    if (c.prefetches && random.chance(60)) {
        c.prefetch_elements = random.pick(distances);
    }
    if (random.chance(30)) {
        c.persistence_threshold = random.pick(std::array<std::size_t, 4>{1, 64, 300, 1U << 20U});
        if (random.chance(50)) {
            c.max_persistent_elements = random.pick(distances);
        }
    }
    if (random.chance(30)) {
        c.max_reuse_distance = random.pick(distances);
    }
    if (random.chance(30)) {
        c.kept_units = random.between(1, c.units + 1);
    }
    if (random.chance(25)) {
        c.keep_until_update = random.pick(distances);
    }
    c.limits_live = !c.holds_handles && random.chance(30);
    c.update_tile_elements =
        random.chance(30) ? random.pick(std::array<std::size_t, 3>{1, 200, 1000}) : 0;
}

/// Cuts one parameter into tiles, in units of their own. The tiles are parameters of the case. The
/// library also knows the parameter that they belong to, which must not change any result. It
/// refuses tiles that cut blocks of scaled states.
inline void cut_into_tiles(Random& random, Configuration& c) {
    std::size_t const count = random.pick(std::array<std::size_t, 5>{2, 2, 3, 4, 4});
    std::size_t const cut = random.below(c.shapes.size() + 1);
    if (cut == c.shapes.size() || c.units < count || c.shapes[cut].units.size() != 1
        || c.shapes[cut].elements < count) {
        return;
    }
    Shape const whole = c.shapes[cut];
    for (std::size_t tile = 0; tile < count; ++tile) {
        if (has_scaled_states(c) && whole.trainable && tile * whole.elements / count % 64 != 0) {
            return;
        }
    }
    std::vector<Shape> tiles(count, whole);
    for (std::size_t tile = 0; tile < count; ++tile) {
        std::size_t const begin = tile * whole.elements / count;
        tiles[tile].elements = (tile + 1) * whole.elements / count - begin;
        tiles[tile].units = {(whole.units.front() + tile) % c.units};
        tiles[tile].address += begin;
        tiles[tile].tile = tile;
        tiles[tile].tiles = count;
    }
    for (Injection& injection : c.injections) {
        if (injection.parameter == cut) {
            while (injection.element >= tiles[injection.parameter - cut].elements) {
                injection.element -= tiles[injection.parameter++ - cut].elements;
            }
        } else if (injection.parameter > cut) {
            injection.parameter += count - 1;
        }
    }
    auto const at = c.shapes.begin() + static_cast<std::ptrdiff_t>(cut);
    c.shapes.insert(c.shapes.erase(at), tiles.begin(), tiles.end());
}

/// Returns whether the engine reduces the caller's gradients in a block like the adopted one, which
/// takes one micro-step unless each is reduced. A single tensor is such a block wherever it lies.
inline bool reduces_in_block(Configuration const& c) {
    std::size_t tensors = 0;
    bool is_callers = c.memory == Memory::adopted;
    for (std::size_t index = 0; index < c.shapes.size(); ++index) {
        if (c.shapes[index].trainable && c.shapes[index].elements != 0) {
            ++tensors;
            is_callers = is_callers && gradient_memory_of(c, index) == GradientMemory::caller_owned;
        }
    }
    return is_callers && tensors != 0 && (tensors == 1 || c.has_gradient_block);
}

/// Returns whether a block of gradients can take the micro-steps of each step.
inline bool may_reduce_in_block(Configuration const& c) {
    return (c.micro_steps == 1 && !c.has_varying_micro_steps)
           || c.schedule == Schedule::every_micro_step;
}

/// Returns configuration `index` of a seed.
inline Configuration make_configuration(std::uint64_t seed, std::size_t index) {
    Random random(seed, index);
    Configuration c;
    c.seed = seed;
    c.index = index;
    c.row = index % generated_rows;
    constexpr std::array<std::size_t, 16> worlds{1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 6, 7, 8};
    c.world = worlds[random.below(worlds.size())];
    c.cap_elements = random.pick(std::array<std::size_t, 7>{1, 64, 128, 200, 256, 512, 1U << 20U});
    c.order = random.chance(60) ? Order::reverse : Order::shuffled;
    if (random.chance(17)) {
        shape_tiny_model(random, c);
    } else {
        shape_model(random, c);
    }
    choose_numbers(random, c);
    choose_calls(random, c);
    add_injections(random, c);
    choose_rebuild(random, c);
    for (Shape& shape : c.shapes) {
        shape.is_float = c.types().has_floats && random.chance(40);
    }
    if (c.combine == Combine::sum && random.chance(50)) {
        c.combine = Combine::mean_over_ranks;
    }
    bool const has_one_micro_step = c.micro_steps == 1 && !c.has_varying_micro_steps;
    c.has_gradient_block = c.memory == Memory::adopted
                           && c.gradient_memory == GradientMemory::caller_owned
                           && may_reduce_in_block(c) && random.chance(80);
    c.wire_elements = random.pick(std::array<std::size_t, 4>{1, 200, 640, 1U << 20U});
    choose_gathering(random, c);
    c.gathers_apart = keyed(c.seed, c.index, 42) % 100 < 40; // keyed, as the number of units
    // An aligned block says that every parameter starts at a multiple of 64 elements.
    if (random.chance(60) && !(c.memory == Memory::adopted && c.has_aligned_block)) {
        cut_into_tiles(random, c);
    }
    if (reduces_in_block(c) && !may_reduce_in_block(c)) {
        c.gradient_memory = GradientMemory::handed_over;
    }
    c.reports_zeros = random.chance(40);
    c.reports_groups = random.chance(40);
    c.promises_one = has_one_micro_step && random.chance(60);
    if (random.chance(10)) {
        c.norm_limit = random.pick(std::array{0.03F, 0.3F, 3.0F});
    }
    if (random.chance(35)) {
        c.norm_factor = random.pick(std::array{1.0001F, 1.1F, 2.0F});
        c.norm_window = random.between(1, 3);
    }
    return c;
}

} // namespace zero::test::oracle
