#pragma once

// Gradients that depend on rank, step and micro-step only, and a straight-line reference of their
// reduction in codes: the blocks of each parameter pass through the codec on each rank, and are
// added in float in rank order.

#include "support/caller_memory.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/loopback.hpp>
#include <zero/core/convert.hpp>
#include <zero/layout/stage_table.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/wire.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace zero::test::gradient_codes {

using Values = std::vector<std::vector<float>>;

/// The gradient that a rank writes.
inline float written(std::uint64_t rank, std::size_t parameter, std::size_t i, std::uint64_t step,
                     std::uint64_t micro_step) {
    float const smaller = 1.0F / static_cast<float>(1U << i * 7 % 5);
    return smaller * noise(2 + rank, parameter, i, step * 16 + micro_step);
}

/// The values of `numbers` after the codec, block by block; without one, rounded to G.
template <class C, class G = float>
std::vector<float> through(std::vector<float> numbers) {
    if constexpr (std::is_same_v<C, Plain>) {
        for (float& number : numbers) {
            number = to_float(from_float<G>(number));
        }
    } else {
        for (std::size_t begin = 0; begin < numbers.size(); begin += 64) {
            std::size_t const end = std::min(begin + 64, numbers.size());
            float block[64] = {};
            std::copy(numbers.begin() + static_cast<std::ptrdiff_t>(begin),
                      numbers.begin() + static_cast<std::ptrdiff_t>(end), block);
            std::vector<std::uint8_t> bytes(C::bytes_per_block);
            C::encode(block, bytes.data());
            C::decode(bytes.data(), block);
            std::copy(block, block + (end - begin),
                      numbers.begin() + static_cast<std::ptrdiff_t>(begin));
        }
    }
    return numbers;
}

/// The sum of what several ranks send, in rank order.
inline void add(std::vector<float>& sum, std::vector<float> const& sent, bool is_first) {
    for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] = is_first ? sent[i] : sum[i] + sent[i];
    }
}

/// The sums of a step of a group of ranks from `first` on: parameter by parameter. Where gradients
/// travel as they are, their sum is rounded once.
template <class G, class C>
Values expected_sums(int world, ReductionSchedule schedule, std::uint64_t step,
                     std::uint64_t micro_steps, std::uint64_t first = 0) {
    Values sums;
    auto const specs = toy_specs();
    for (std::size_t p = 0; p < specs.size(); ++p) {
        std::size_t const n = specs[p].trainable ? specs[p].elements : 0;
        bool const is_boundary = schedule == ReductionSchedule::boundary;
        std::vector<float> all(n);
        for (std::uint64_t micro_step = 0; micro_step < (is_boundary ? 1 : micro_steps);
             ++micro_step) {
            std::vector<float> sum(n);
            for (std::uint64_t rank = 0; rank < static_cast<std::uint64_t>(world); ++rank) {
                std::vector<float> own(n);
                for (std::size_t i = 0; i < n; ++i) {
                    own[i] = to_float(from_float<G>(written(first + rank, p, i, step, micro_step)));
                    for (std::uint64_t m = 1; is_boundary && m < micro_steps; ++m) {
                        own[i] += to_float(from_float<G>(written(first + rank, p, i, step, m)));
                    }
                }
                add(sum, through<C, G>(own), rank == 0);
            }
            add(all, std::is_same_v<C, Plain> ? through<Plain, G>(sum) : sum, micro_step == 0);
        }
        sums.push_back(all);
    }
    return sums;
}

/// The same with R replicas of G ranks, which send their sums through the other codec.
template <class G, class Inside, class Between>
Values expected_sums(int shard, int replicas, ReductionSchedule schedule, std::uint64_t step,
                     std::uint64_t micro_steps) {
    Values sums = expected_sums<G, Inside>(shard, schedule, step, micro_steps);
    for (int replica = 1; replica < replicas; ++replica) {
        auto const others = expected_sums<G, Inside>(shard, schedule, step, micro_steps,
                                                     static_cast<std::uint64_t>(replica * shard));
        for (std::size_t p = 0; p < sums.size(); ++p) {
            sums[p] = replica == 1 ? through<Between, G>(sums[p]) : sums[p];
            add(sums[p], through<Between, G>(others[p]), false);
            sums[p] = replica + 1 == replicas ? through<Between, G>(sums[p]) : sums[p];
        }
    }
    return sums;
}

/// Writes the gradients of the micro-steps of a step. @param spoil `spoil(parameter, gradient)`
/// changes what a rank wrote
template <class Engine, class Spoil>
void write_gradients(Engine& engine, std::uint64_t rank, std::uint64_t step,
                     std::uint64_t micro_steps, Spoil const& spoil) {
    using G = typename Engine::GradientType;
    engine.begin_step();
    for (auto const micro_step : engine.micro_steps(micro_steps)) {
        pass_through(
            engine, [&](std::size_t, std::size_t parameter, auto const&, auto const& gradient) {
                for (std::size_t i = 0; i < gradient.size(); ++i) {
                    gradient[i] = from_float<G>(written(rank, parameter, i, step, micro_step));
                }
                spoil(parameter, gradient);
            });
    }
}

template <class Engine>
void write_gradients(Engine& engine, std::uint64_t rank, std::uint64_t step,
                     std::uint64_t micro_steps) {
    write_gradients(engine, rank, step, micro_steps, [](std::size_t, auto const&) {});
}

/// All sums of the last micro-steps, as reduced. Collective.
template <class Engine>
Values full_sums(Engine& engine) {
    TrainingState state(engine);
    Values sums;
    for (std::size_t p = 0; p < engine.layout().parameters().size(); ++p) {
        bool const has_one = engine.layout().parameter(p).trainable;
        sums.push_back(has_one ? state.full_gradient(p, GradientForm::scaled)
                               : std::vector<float>());
    }
    return sums;
}

inline bool same_bits(Values const& a, Values const& b) {
    auto const bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](auto const& x, auto const& y) {
        return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                          [&](float s, float t) { return bits(s) == bits(t); });
    });
}

} // namespace zero::test::gradient_codes
