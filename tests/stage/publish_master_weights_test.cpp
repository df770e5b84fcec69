#include "state_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"

#include <vector>

// Weights that were set reach the parameters of every rank, and the next step starts from them.

namespace zero::test::publish_master_weights_test {

namespace {

using namespace state_model;
using Values = std::vector<std::vector<float>>;
using State = std::vector<std::vector<Bits>>; ///< by rank and parameter

std::vector<Bits> all_bits(Values const& values) {
    std::vector<Bits> bits;
    for (auto const& parameter : values) {
        bits.push_back(bits_of(parameter));
    }
    return bits;
}

struct Seen {
    std::vector<Bits> before;     ///< parameters before publishing
    std::vector<Bits> after;      ///< parameters after publishing
    std::vector<Bits> masters;    ///< full weights
    std::vector<bool> owns_first; ///< whether this rank updates the first element
};

/// Sets all weights on their owners and publishes them.
template <class Stage>
std::vector<Seen> publish(int world) {
    return on_ranks<Seen>(world, [](LoopbackCommunicator& communicator) {
        Toy<Stage> toy(communicator);
        TrainingState state(*toy.engine);
        Seen seen;
        for (std::size_t p = 0; p < toy_specs().size(); ++p) {
            seen.owns_first.push_back(false);
            auto const values = some_values(Exact::every_float, 70, p);
            if (!toy_specs()[p].trainable) {
                continue; // replicated in stages 0 to 2
            }
            for (LocalValues const& slice : state.local_fp32_parameter(p)) {
                seen.owns_first.back() =
                    seen.owns_first.back() || (slice.begin == 0 && !slice.values.empty());
                state.set_local_fp32_parameter(
                    p, slice.begin,
                    std::span<float const>(values).subspan(slice.begin, slice.values.size()));
            }
        }
        seen.before = all_bits(full_parameters(*toy.engine));
        state.publish_master_weights();
        seen.after = all_bits(full_parameters(*toy.engine));
        for (std::size_t p = 0; p < toy_specs().size(); ++p) {
            seen.masters.push_back(bits_of(state.full_fp32_parameter(p)));
        }
        return seen;
    });
}

template <class Stage>
void check_published(int world) {
    auto const ranks = publish<Stage>(world);
    for (Seen const& seen : ranks) {
        for (std::size_t p = 0; p < toy_specs().size(); ++p) {
            if (toy_specs()[p].trainable) {
                INFO(toy_specs()[p].name);
                auto const values = some_values(Exact::every_float, 70, p);
                CHECK((seen.after[p] == bits_of(rounded<Stage>(p, values))));
                CHECK((seen.masters[p] == bits_of(values)));
            }
        }
    }
}

} // namespace

TEST_CASE("Published master weights keep every bit, and every rank reads them rounded") {
    in_every_stage([]<int N>() {
        for (int const world : {1, 2, 3}) {
            check_published<ZeroStage<N, Parameters<bfloat16>>>(world);
            check_published<ZeroStage<N, Parameters<bfloat16>, SplitMasterWeights>>(world);
        }
        check_published<ZeroStage<N>>(2);
        check_published<ZeroStage<N, Parameters<bfloat16, float>>>(3);
    });
}

TEST_CASE("Before they are published, another rank of stage 1 or 2 reads the old parameters") {
    auto const check = []<int N>() {
        auto const ranks = publish<ZeroStage<N, Parameters<bfloat16>>>(2);
        for (std::size_t p : {0U, 1U, 3U, 5U}) { // of parameters with many elements
            INFO("stage " << N << ", " << toy_specs()[p].name);
            for (Seen const& seen : ranks) {
                bool const is_new = seen.before[p][0] == seen.after[p][0];
                CHECK(is_new == seen.owns_first[p]);
            }
        }
    };
    check.operator()<1>();
    check.operator()<2>();
}

namespace {

/// The first step of an engine that begins with some weights, or gets them after another step.
template <class Stage>
std::vector<std::vector<std::uint32_t>> first_step(bool is_set) {
    using T = typename Stage::ParameterType;
    return on_ranks<std::vector<std::uint32_t>>(3, [&](LoopbackCommunicator& communicator) {
        auto parameters = registration<T>(toy_specs());
        for (std::size_t p = 0; p < parameters.size() && !is_set; ++p) {
            parameters[p].initialise = [p](std::size_t begin, std::span<T> values) {
                auto const all = some_values(Exact::eight_bits, 90, p);
                for (std::size_t i = 0; i < values.size(); ++i) {
                    values[i] = from_float<T>(all[begin + i]);
                }
            };
        }
        typename Stage::Options options;
        Stage engine(communicator, parameters, options);
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        if (is_set) {
            (void)run_step(engine, rank, 7);
            TrainingState state(engine);
            for (std::size_t p = 0; p < parameters.size(); ++p) {
                state.set_full_fp32_parameter(p, some_values(Exact::eight_bits, 90, p));
                if (parameters[p].trainable) {
                    std::vector<float> const zeros(parameters[p].elements);
                    state.set_full_optimizer_state(p, "exp_avg", zeros);
                    state.set_full_optimizer_state(p, "exp_avg_sq", zeros);
                }
            }
            engine.set_step_count(0);
        }
        (void)run_step(engine, rank, 0);
        return snapshot(engine);
    });
}

} // namespace

TEST_CASE("The step after set_full_fp32_parameter is that of an engine constructed with these "
          "weights") {
    in_every_stage([]<int N>() {
        CHECK((first_step<ZeroStage<N>>(true) == first_step<ZeroStage<N>>(false)));
        using Halves = ZeroStage<N, Parameters<bfloat16>>;
        CHECK((first_step<Halves>(true) == first_step<Halves>(false)));
    });
}

TEST_CASE("Refreshed master weights have the bits of the parameters") {
    in_every_stage([]<int N>() {
        using Stage = ZeroStage<N, Parameters<bfloat16>>;
        auto const ranks = on_ranks<std::vector<Bits>>(3, [](LoopbackCommunicator& communicator) {
            Toy<Stage> toy(communicator);
            TrainingState state(*toy.engine);
            state.set_full_fp32_parameter(0, some_values(Exact::every_float, 70, 0));
            std::vector<Bits> seen{bits_of(state.full_fp32_parameter(0))};
            state.refresh_master_weights();
            seen.push_back(bits_of(state.full_fp32_parameter(0)));
            return seen;
        });
        auto const values = some_values(Exact::every_float, 70, 0);
        for (auto const& seen : ranks) {
            CHECK(seen[0] == bits_of(values));
            CHECK(seen[1] == bits_of(rounded<Stage>(0, values)));
            CHECK(seen[0] != seen[1]);
        }
    });
}

namespace {

enum class Write { values, masters, both };

/// Writes every third element through the owned slices: 2 to the values, or 3.01 to the master
/// weights. Then calls one of the two functions, and returns the weights and the parameters of
/// parameter 1.
template <int N, class Stage>
std::vector<std::vector<Bits>> written(Write write, bool publishes) {
    return on_ranks<std::vector<Bits>>(3, [&](LoopbackCommunicator& communicator) {
        Toy<Stage> toy(communicator);
        auto& engine = *toy.engine;
        TrainingState state(engine);
        state.set_full_fp32_parameter(1, some_values(Exact::every_float, 70, 1));
        // In stage 0 the other ranks have written something else, which rank 0 replaces.
        float const more = N == 0 ? static_cast<float>(communicator.rank()) : 0.0F;
        engine.for_each_owned_slice([&](auto const& slice) {
            for (std::size_t i = 0; slice.parameter == 1 && i < slice.values.size(); ++i) {
                if ((slice.begin + i) % 3 == 0) {
                    if (write != Write::masters) {
                        slice.values[i] = from_float<bfloat16>(2.0F + more);
                    }
                    if (write != Write::values) {
                        slice.master[i] = 3.01F + more;
                    }
                }
            }
        });
        engine.for_each_owned_slice([](auto const&) {}); // reading changes nothing
        publishes ? state.publish_master_weights() : engine.parameters_changed();
        return std::vector<Bits>{bits_of(state.full_fp32_parameter(1)),
                                 bits_of(full_parameters(engine)[1])};
    });
}

/// Returns parameter 1 with every third element replaced.
std::vector<float> replaced(float by) {
    std::vector<float> values = some_values(Exact::every_float, 70, 1);
    for (std::size_t i = 0; i < values.size(); i += 3) {
        values[i] = by;
    }
    return values;
}

} // namespace

TEST_CASE("Publishing is right for values and for master weights that a visitor wrote, and keeps "
          "the bits of all others") {
    in_every_stage([]<int N>() {
        using Stage = ZeroStage<N, Parameters<bfloat16>>;
        for (Write const write : {Write::values, Write::masters, Write::both}) {
            auto const weights = replaced(write == Write::values ? 2.0F : 3.01F);
            for (auto const& rank : written<N, Stage>(write, true)) {
                INFO("stage " << N << ", write " << static_cast<int>(write));
                CHECK(rank[0] == bits_of(weights));
                CHECK(rank[1] == bits_of(rounded<Stage>(1, weights)));
            }
        }
    });
}

TEST_CASE("After parameters_changed what a visitor wrote is there, rounded to the parameter type") {
    in_every_stage([]<int N>() {
        using Stage = ZeroStage<N, Parameters<bfloat16>>;
        for (Write const write : {Write::values, Write::masters}) {
            auto const weights = rounded<Stage>(1, replaced(write == Write::values ? 2.0F : 3.01F));
            for (auto const& rank : written<N, Stage>(write, false)) {
                INFO("stage " << N << ", write " << static_cast<int>(write));
                CHECK(rank[0] == bits_of(weights));
                CHECK(rank[1] == bits_of(weights));
            }
        }
    });
}

} // namespace zero::test::publish_master_weights_test
