#pragma once

// The loss scaler of docs/adding_a_policy.md. The blocks of the page are this file's text;
// worked_example_test.cpp compares them.

#include <zero/core/error.hpp>
#include <zero/policy/loss_scaler.hpp>
#include <zero/policy/no_loss_scaler.hpp>
#include <zero/policy/static_loss_scaler.hpp>

#include <cstdint>

struct CautiousLossScalerOptions {
    float initial_scale = 65536.0F;     ///< at least 1, at most 2^24
    std::uint32_t patience = 100;       ///< clean steps before the first growth; at least 1
    std::uint32_t most_patience = 1600; ///< at least `patience`
};

/// @brief Halves the scale on every overflow, and then waits twice as long as before to double it.
struct CautiousLossScaler {
    using policy_category = zero::LossScalerCategory;
    using Options = CautiousLossScalerOptions;
    struct State { // everything the rule remembers
        float scale = 1.0F;
        std::uint32_t patience = 1;
        std::uint32_t clean_steps = 0;
    };
    static constexpr bool skips_overflow = true;

    static void validate(Options const& options) {
        if (!(options.initial_scale >= 1.0F && options.initial_scale <= largest_scale)) {
            throw zero::InvalidArgument(
                "CautiousLossScaler: initial_scale must lie between 1 and 2^24.");
        }
        if (options.patience < 1 || options.most_patience < options.patience) {
            throw zero::InvalidArgument("CautiousLossScaler: patience must be at least 1, and "
                                        "most_patience at least patience.");
        }
    }

    static void add_to(zero::Hash& hash, Options const& options) noexcept {
        hash.add(double{options.initial_scale}).add(options.patience).add(options.most_patience);
    }

    static State initial(Options const& options) noexcept {
        return {options.initial_scale, options.patience, 0};
    }

    static State next(State state, bool overflow, Options const& options) noexcept {
        if (overflow) {
            float const half = state.scale * 0.5F;
            std::uint32_t const left = options.most_patience - state.patience;
            return {half < 1.0F ? 1.0F : half,
                    state.patience + (state.patience < left ? state.patience : left), 0};
        }
        if (++state.clean_steps >= state.patience) {
            float const twice = state.scale * 2.0F;
            state.scale = twice > largest_scale ? largest_scale : twice;
            state.clean_steps = 0;
        }
        return state;
    }

    static bool is_exhausted(State state, Options const&) noexcept { return state.scale <= 1.0F; }

private:
    static constexpr float largest_scale = 0x1p24F;
};
static_assert(zero::LossScaler<CautiousLossScaler>);
