#pragma once

// The oracle: what W ranks must compute for one configuration, in one thread, without buckets,
// shards, queues or stages. It shares nothing with the library but the storage types and
// their conversions, and the codecs: it includes no header of the engine, the
// communicators, the layout or the arithmetic.
//
// The trainer (trainer.hpp) compares every parameter, master weight and optimizer state of every
// rank with it, bit by bit.

#include "configuration.hpp"
#include "numbers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace zero::test::oracle {

/// @name Inputs: initial values, and the terms of the backward pass
/// @{

inline float initial_value(Configuration const& c, std::size_t rank, std::size_t parameter,
                           std::size_t element) {
    Place const whole = c.place(parameter);
    std::uint64_t const bits =
        keyed(c.seed, c.index, Stream::initial, rank, whole.parameter, whole.begin + element);
    float const unit =
        static_cast<float>(static_cast<std::int64_t>(bits >> 40U) - (std::int64_t{1} << 23U))
        * 0x1.0p-23F; // in [-1, 1)
    return rounded(c.numbers(parameter).parameter, unit);
}

/// Returns what one use of a parameter adds to its gradient. It is a value of the gradient type,
/// includes the loss scale and is never -0.
inline float contribution(Configuration const& c, std::size_t step, std::size_t micro_step,
                          std::size_t rank, std::size_t parameter, std::size_t unit,
                          std::size_t element, float loss_scale) {
    Number const type = c.numbers(parameter).gradient;
    bool const is_last = unit == c.shapes[parameter].units.back();
    Place const whole = c.place(parameter);
    parameter = whole.parameter;
    element += whole.begin;
    if (is_last) {
        for (auto const& injection : c.injections) {
            if (injection.step == step && injection.micro_step == micro_step
                && injection.rank == rank && injection.parameter == parameter
                && injection.element == element) {
                switch (injection.value) {
                case Poisoned::infinity: return std::numeric_limits<float>::infinity();
                case Poisoned::negative_infinity: return -std::numeric_limits<float>::infinity();
                default: return canonical(std::numeric_limits<float>::quiet_NaN());
                }
            }
        }
    }
    std::uint64_t const bits =
        keyed(c.seed, c.index, Stream::gradient, (step * 16 + micro_step) * 64 + rank,
              parameter * 64 + unit, element);
    if (bits % 16 == 0) {
        return 0.0F;
    }
    float const mantissa = 1.0F + static_cast<float>((bits >> 8U) & 0x7fffffU) * 0x1.0p-23F;
    int const exponent = c.gradient_exponent + static_cast<int>((bits >> 40U) % 6);
    float const magnitude = rounded(type, times(std::ldexp(mantissa, exponent), loss_scale));
    return (bits >> 60U) % 2 == 0 || magnitude == 0.0F ? magnitude : -magnitude;
}

/// @}

struct ScalerState {
    float scale = 1.0F;
    std::uint32_t clean_steps = 0;
    std::uint32_t hysteresis_left = 1;
};

struct Report {
    std::uint64_t serial = 0;
    std::uint64_t step_count = 0;
    bool is_skipped = false;
    bool is_too_large = false;
    std::uint32_t too_large = 0;
    bool has_norm = false;
    double norm = 0.0;
    float norm_limit = std::numeric_limits<float>::infinity();
    float coefficient = 1.0F;
    std::int64_t non_finite_count = 0;
    std::int64_t first_non_finite = -1;
    std::int64_t zeros = 0;
    std::vector<double> groups;    ///< norm of each group
    std::vector<Place> non_finite; ///< elements of the gradients
    float loss_scale = 1.0F;
    float next_loss_scale = 1.0F;
};

/// The complete training state between two steps.
struct Snapshot {
    std::vector<Values> parameters; ///< that a pass reads
    std::vector<Values> shards;     ///< the same before they are encoded
    std::vector<Values> masters;
    std::array<std::vector<Values>, 2> states; ///< AdamW: both moments; SGD: the first
    std::uint64_t step_count = 0;
    ScalerState scaler;
    double running_norm = 0.0;               ///< of the steps that were not skipped
    std::size_t norms = 0;                   ///< their number
    std::vector<std::vector<Values>> errors; ///< by parameter and rank
    float error_scale = 0.0F;                ///< the loss scale in them; 0: they count as 0
    Report report;                           ///< report of the last step
};

/// The states of a run: `snapshots[k]` follows k steps.
struct History {
    std::vector<Snapshot> snapshots;
};

inline ScalerState first_scaler_state(Configuration const& c) {
    switch (c.types().scaler) {
    case Scaler::fixed: return {c.fixed_scale, 0, 1};
    case Scaler::dynamic: return {c.scaler.initial, 0, c.scaler.hysteresis};
    default: return {};
    }
}

inline ScalerState next_scaler_state(Configuration const& c, ScalerState state, bool has_overflow) {
    if (c.types().scaler != Scaler::dynamic) {
        return state;
    }
    if (has_overflow) {
        state.clean_steps = 0;
        if (state.hysteresis_left > 1) {
            state.hysteresis_left -= 1;
        } else {
            state.scale =
                static_cast<float>(times(static_cast<double>(state.scale), c.scaler.backoff));
            state.scale = state.scale < c.scaler.minimum ? c.scaler.minimum : state.scale;
        }
        return state;
    }
    state.clean_steps += 1;
    bool const grows = state.clean_steps == c.scaler.interval;
    if (c.scaler.is_consecutive || grows) {
        state.hysteresis_left = c.scaler.hysteresis;
    }
    if (grows) {
        state.clean_steps = 0;
        state.scale = static_cast<float>(times(static_cast<double>(state.scale), c.scaler.growth));
        state.scale = state.scale > c.scaler.maximum ? c.scaler.maximum : state.scale;
    }
    return state;
}

/// Returns the divisor of gradients before they are sent: the configured one, or for a float16 wire
/// the smallest power of two d with 2 * d * d >= W.
inline float predivide_of(Configuration const& c) {
    if (c.predivide) {
        return *c.predivide;
    }
    std::size_t divisor = 1;
    while (c.code == Code::plain && c.types().communication == Number::float16
           && 2 * divisor * divisor < c.data_ranks()) {
        divisor *= 2;
    }
    return static_cast<float>(divisor);
}

/// Returns a parameter's gradient on one rank in one micro-step. The units that use the parameter
/// add to it in reverse order, and each addition is rounded to the gradient type.
inline Values local_gradient(Configuration const& c, std::size_t step, std::size_t micro_step,
                             std::size_t rank, std::size_t parameter, float loss_scale) {
    Shape const& shape = c.shapes[parameter];
    Values sum(shape.elements, 0.0F);
    for (std::size_t use = shape.units.size(); use-- > 0;) {
        if (!is_unused(c, step, micro_step, rank, shape.units[use])) {
            for (std::size_t i = 0; i < shape.elements; ++i) {
                sum[i] = rounded(c.numbers(parameter).gradient,
                                 plus(sum[i], contribution(c, step, micro_step, rank, parameter,
                                                           shape.units[use], i, loss_scale)));
            }
        }
    }
    return sum;
}

/// Returns the sum over ranks. Each rank rounds its gradient to the communication type; the sum is
/// formed in rank order in float, and rounded once.
inline Values sum_over_ranks(Configuration const& c, Number wire,
                             std::vector<Values> const& of_rank) {
    float const inverse = 1.0F / predivide_of(c);
    Values sums;
    for (std::size_t i = 0; i < of_rank[0].size(); ++i) {
        float sum = rounded(wire, times(of_rank[0][i], inverse));
        for (std::size_t rank = 1; rank < of_rank.size(); ++rank) {
            sum = plus(sum, rounded(wire, times(of_rank[rank][i], inverse)));
        }
        sums.push_back(rounded(wire, sum));
    }
    return sums;
}

/// Adds `values` to `sum`, each addition rounded to the accumulation type. The first call assigns.
inline void accumulate(Number type, Values& sum, Values const& values, bool is_first) {
    sum.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        sum[i] = rounded(type, is_first ? values[i] : plus(sum[i], values[i]));
    }
}

/// Returns a parameter's gradient at the end of a step, in the accumulation type, summed over the
/// ranks [first, last). Loss scale and divisor are still in it.
/// @param errors of every rank
inline Values reduced_gradient(Configuration const& c, std::size_t step, std::size_t parameter,
                               float loss_scale, std::size_t first, std::size_t last,
                               std::vector<Values>& errors) {
    std::size_t const micro_steps = micro_steps_of(c, step);
    Numbers const numbers = c.numbers(parameter);
    auto const sum = [&](std::vector<Values> const& of_rank) {
        return c.code == Code::plain ? sum_over_ranks(c, numbers.communication, of_rank)
                                     : sum_in_codes(c, of_rank, errors.data() + first);
    };
    Values result;
    if (c.schedule == Schedule::every_micro_step) {
        for (std::size_t micro_step = 0; micro_step < micro_steps; ++micro_step) {
            std::vector<Values> of_rank;
            for (std::size_t rank = first; rank < last; ++rank) {
                of_rank.push_back(local_gradient(c, step, micro_step, rank, parameter, loss_scale));
            }
            accumulate(numbers.accumulation, result, sum(of_rank), micro_step == 0);
        }
    } else {
        std::vector<Values> of_rank(last - first);
        for (std::size_t rank = first; rank < last; ++rank) {
            for (std::size_t micro_step = 0; micro_step < micro_steps; ++micro_step) {
                accumulate(numbers.accumulation, of_rank[rank - first],
                           local_gradient(c, step, micro_step, rank, parameter, loss_scale),
                           micro_step == 0);
            }
        }
        accumulate(numbers.accumulation, result, sum(of_rank), true);
    }
    return result;
}

/// Returns the same over all ranks. With groups the sum of each group is rounded to the type in
/// which it is sent; these are added in float in the order of the groups, and rounded once.
inline Values reduced_gradient(Configuration const& c, std::size_t step, std::size_t parameter,
                               float loss_scale, std::vector<Values>& errors) {
    std::size_t const of_group = c.shard == 0 ? c.world : c.shard;
    Values total = reduced_gradient(c, step, parameter, loss_scale, 0, of_group, errors);
    if (of_group == c.world) {
        return total;
    }
    Numbers const numbers = c.numbers(parameter);
    bool const sends_float = c.sends_float_between || c.between != Code::plain;
    auto const sent = [&](Values const& values) {
        return read_of(c.between, sends_float ? Number::float32 : numbers.communication, values);
    };
    total = sent(total);
    for (std::size_t first = of_group; first < c.world; first += of_group) {
        Values const group =
            sent(reduced_gradient(c, step, parameter, loss_scale, first, first + of_group, errors));
        for (std::size_t i = 0; i < total.size(); ++i) {
            total[i] = plus(total[i], group[i]);
        }
    }
    if (c.between != Code::plain) { // what is encoded again is the sum as it is kept
        total = read_of(Code::plain, numbers.accumulation, total);
    }
    return read_of(Code::plain, numbers.accumulation, sent(total));
}

/// Returns the learning-rate factor of a group in a step.
inline double factor_of(Configuration const& c, std::size_t step, std::size_t group) {
    double factor = c.lists_groups ? c.groups[group].learning_rate_factor : 1.0;
    for (auto const& change : c.changes) {
        factor = change.group == group && change.step <= step ? change.factor : factor;
    }
    return factor;
}

/// Updates one element by the optimizer. Every float operation is rounded once. A product that is
/// added to something is fused with the addition, except in the custom functor.
inline void update_element(Configuration const& c, Hyper const& hyper, double learning_rate,
                           std::uint64_t count, float gradient, float& value, float& first,
                           float& second) {
    if (c.types().rule == Rule::adamw) {
        auto const rate1 = static_cast<float>(1.0 - hyper.beta1);
        auto const rate2 = static_cast<float>(1.0 - hyper.beta2);
        auto const beta2 = static_cast<float>(hyper.beta2);
        auto const decay2 = static_cast<double>(beta2);
        // The gradients so far have the weights rate * (1 - rate)^k. Both corrections are the sums
        // of these weights, computed with the rounded rates.
        double const correction1 = 1.0 - power(1.0 - static_cast<double>(rate1), count);
        double const correction2 =
            times(static_cast<double>(rate2), (1.0 - power(decay2, count)) / (1.0 - decay2));
        auto const step_size = static_cast<float>(learning_rate / correction1);
        auto const inverse_root = static_cast<float>(1.0 / std::sqrt(correction2));
        auto const decay = static_cast<float>(times(learning_rate, hyper.weight_decay));
        first = std::fma(rate1, gradient, std::fma(-rate1, first, first));
        second = std::fma(beta2, second, times(rate2, times(gradient, gradient)));
        float const denominator =
            std::fma(inverse_root, std::sqrt(second), static_cast<float>(hyper.epsilon));
        float const ratio = first / denominator;
        float const change = std::fma(step_size, ratio, times(decay, value));
        value = value - change;
    } else if (c.types().rule == Rule::products) {
        auto const momentum = static_cast<float>(hyper.momentum);
        auto const rate = static_cast<float>(-learning_rate);
        float const scale = plus(times(rate, momentum),
                                 times(rate, plus(1.0F, static_cast<float>(hyper.weight_decay))));
        first = plus(times(momentum, first), gradient);
        value = plus(value, times(scale, first));
    } else {
        auto const momentum = static_cast<float>(hyper.momentum);
        auto const rate = static_cast<float>(-learning_rate);
        float const direction = std::fma(static_cast<float>(hyper.weight_decay), value, gradient);
        first = std::fma(momentum, first, direction);
        float const change = hyper.nesterov ? std::fma(momentum, first, direction) : first;
        value = std::fma(rate, change, value);
    }
    first = canonical(first);
    second = canonical(second);
    value = canonical(value);
}

inline Snapshot first_snapshot(Configuration const& c) {
    Snapshot snapshot;
    for (std::size_t parameter = 0; parameter < c.shapes.size(); ++parameter) {
        Values values;
        for (std::size_t i = 0; i < c.shapes[parameter].elements; ++i) {
            values.push_back(initial_value(c, 0, parameter, i));
        }
        Code const code = c.shapes[parameter].trainable ? c.weights : c.frozen;
        snapshot.parameters.push_back(read_of(code, c.numbers(parameter).parameter, values));
        snapshot.shards.push_back(values);
        snapshot.masters.push_back(values);
        snapshot.errors.emplace_back(c.world, Values(values.size(), 0.0F));
        for (auto& state : snapshot.states) {
            state.emplace_back(values.size(), 0.0F);
        }
    }
    snapshot.scaler = first_scaler_state(c);
    return snapshot;
}

/// Returns the state after one more optimizer step.
inline Snapshot next_snapshot(Configuration const& c, Snapshot snapshot, std::size_t step) {
    float const loss_scale = snapshot.scaler.scale;
    bool const forgets = snapshot.error_scale == 0.0F || (c.cancels && step == 1);
    float const rescale = forgets ? 0.0F : loss_scale / snapshot.error_scale;
    for (auto& of_parameter : snapshot.errors) {
        for (Values& of_rank : of_parameter) {
            for (float& error : of_rank) {
                error = times(error, rescale);
            }
        }
    }
    std::vector<Values> gradients(c.shapes.size());
    Report report;
    report.serial = step + 1;
    report.loss_scale = loss_scale;
    ExactSum squares;
    std::vector<ExactSum> group_squares(c.groups.size());
    std::vector<bool> has_group_overflow(c.groups.size());
    std::int64_t first_element = 0;
    std::vector<std::uint64_t> first_elements;
    for (std::size_t parameter = 0; parameter < c.shapes.size(); ++parameter) {
        first_elements.push_back(static_cast<std::uint64_t>(first_element));
        if (c.shapes[parameter].trainable) {
            Values const& values = gradients[parameter] =
                reduced_gradient(c, step, parameter, loss_scale, snapshot.errors[parameter]);
            for (std::size_t i = 0; i < values.size(); ++i) {
                std::size_t const group = c.shapes[parameter].group;
                report.zeros += c.reports_zeros && values[i] == 0.0F ? 1 : 0;
                if (std::isfinite(values[i])) {
                    auto const value = static_cast<double>(values[i]);
                    squares.add(value * value); // exact in double
                    group_squares[group].add(value * value);
                } else {
                    has_group_overflow[group] = true;
                    report.first_non_finite = report.non_finite_count == 0
                                                  ? first_element + static_cast<std::int64_t>(i)
                                                  : report.first_non_finite;
                    report.non_finite_count += 1;
                    report.non_finite.push_back({parameter, i});
                }
            }
        }
        first_element += static_cast<std::int64_t>(c.shapes[parameter].elements);
    }
    bool const skips_overflow =
        c.types().scaler != Scaler::none || c.on_non_finite == OnNonFinite::skip;
    report.too_large = snapshot.report.too_large;
    bool const limits_norm = c.norm_limit || c.norm_factor;
    report.has_norm =
        skips_overflow || c.clip.has_value() || limits_norm || c.reports_zeros || c.reports_groups;
    double const divisor =
        c.combine == Combine::mean ? static_cast<double>(c.data_ranks() * micro_steps_of(c, step))
        : c.combine == Combine::mean_over_ranks ? static_cast<double>(c.data_ranks())
                                                : 1.0;
    double const base =
        static_cast<double>(predivide_of(c)) / times(divisor, static_cast<double>(loss_scale));
    for (std::size_t group = 0; c.reports_groups && group < c.groups.size(); ++group) {
        report.groups.push_back(has_group_overflow[group]
                                    ? std::numeric_limits<double>::infinity()
                                    : times(std::sqrt(group_squares[group].value()), base));
    }
    double coefficient = 1.0;
    if (report.has_norm) {
        bool const has_overflow = report.non_finite_count != 0;
        report.norm = has_overflow ? std::numeric_limits<double>::infinity()
                                   : times(std::sqrt(squares.value()), base);
        if (c.clip && static_cast<double>(*c.clip) / (report.norm + 1e-6) < 1.0) {
            coefficient = static_cast<double>(*c.clip) / (report.norm + 1e-6);
        }
        if (!has_overflow) {
            double most = std::numeric_limits<double>::infinity();
            if (c.norm_factor && snapshot.norms >= c.norm_window && snapshot.running_norm != 0.0) {
                most = static_cast<double>(*c.norm_factor) * snapshot.running_norm;
            }
            if (c.norm_limit && static_cast<double>(*c.norm_limit) < most) {
                most = static_cast<double>(*c.norm_limit);
            }
            report.norm_limit = static_cast<float>(most);
            report.is_too_large = report.norm > most;
            report.too_large += report.is_too_large ? 1 : 0;
        }
        report.is_skipped = (has_overflow && skips_overflow) || report.is_too_large;
        if (!report.is_too_large) {
            snapshot.scaler = next_scaler_state(c, snapshot.scaler, has_overflow);
        }
        if (!report.is_too_large && !has_overflow) {
            snapshot.norms += 1;
            auto const count = static_cast<double>(std::min(snapshot.norms, c.norm_window));
            snapshot.running_norm += (report.norm - snapshot.running_norm) / count;
        }
    } else {
        report.non_finite_count = 0;
        report.first_non_finite = -1;
        report.non_finite.clear();
    }
    report.coefficient = static_cast<float>(coefficient);
    report.next_loss_scale = snapshot.scaler.scale;
    auto const factor = static_cast<float>(times(base, coefficient));
    if (!report.is_skipped) {
        snapshot.step_count += 1;
        std::uint64_t const key = rounding_key(c, snapshot.step_count);
        for (std::size_t parameter = 0; parameter < c.shapes.size(); ++parameter) {
            Shape const& shape = c.shapes[parameter];
            for (std::size_t i = 0; shape.trainable && i < shape.elements; ++i) {
                double const learning_rate =
                    times(learning_rate_of(c, step), factor_of(c, step, shape.group));
                float& master = snapshot.masters[parameter][i];
                update_element(c, c.groups[c.lists_groups ? shape.group : 0], learning_rate,
                               snapshot.step_count, times(gradients[parameter][i], factor), master,
                               snapshot.states[0][parameter][i], snapshot.states[1][parameter][i]);
                float const value = master;
                float& kept = snapshot.shards[parameter][i] =
                    rounded(c.numbers(parameter).parameter, value);
                switch (c.numbers(parameter).master) {
                case Master::none: master = kept; break;
                case Master::float16: master = rounded(Number::float16, value); break;
                case Master::stochastic:
                    master = kept = rounded_stochastically(
                        value, rounding_bits(key, first_elements[parameter] + i));
                    break;
                default: break;
                }
            }
            if (shape.trainable) {
                snapshot.parameters[parameter] =
                    read_of(c.weights, c.numbers(parameter).parameter, snapshot.shards[parameter]);
            }
            for (std::size_t state = 0; state < snapshot.states.size(); ++state) {
                round_states(c.types().states, state, key, first_elements[parameter],
                             snapshot.states[state][parameter]);
            }
        }
    }
    bool const resets = report.is_skipped || snapshot.step_count % c.reset_every == 0;
    snapshot.error_scale = resets ? 0.0F : loss_scale;
    report.step_count = snapshot.step_count;
    snapshot.report = report;
    return snapshot;
}

/// Returns the states of all steps of a configuration.
inline History compute_history(Configuration const& c) {
    History history;
    history.snapshots.push_back(first_snapshot(c));
    for (std::size_t step = 0; step < c.all_steps(); ++step) {
        history.snapshots.push_back(next_snapshot(c, history.snapshots.back(), step));
    }
    return history;
}

} // namespace zero::test::oracle
