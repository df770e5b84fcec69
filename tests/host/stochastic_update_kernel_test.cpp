#include "host/kernel_inputs.hpp"

#include <zero/host/kernels.hpp>
#include <zero/host/update.hpp>
#include <zero/ops/adamw.hpp>
#include <zero/ops/sgd.hpp>

#include "support/catch.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace zero::test::stochastic_update_kernel_test {

// Stochastically rounded parameters have the same bits with every instruction set, length and cut,
// and keep small updates that plain rounding loses.
namespace {

/// Stores the gradient in the parameter.
struct Assign {
    using policy_category = OptimizerCategory;
    static constexpr std::size_t states = 0;
    struct Hyper {};
    template <class F, class State>
    void operator()(F gradient, F& parameter, State&, Hyper const&) const {
        parameter = gradient;
    }
};

template <class P>
int differences(std::uint64_t first_index, float size) {
    int wrong = 0;
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        for (std::size_t n = 0; scope.is_supported() && n <= 200; ++n) {
            auto const values = kernel_inputs<float>(n, 4);
            std::vector<P> parameter(n + 1, P::from_bits(77)), expected(n + 1, P::from_bits(77));
            for (std::size_t i = 0; i < n; ++i) {
                expected[i] = ops::round_stochastically<P>(canonical(ops::mul(values[i], size)),
                                                           ops::random_bits(55, first_index + i));
            }
            host::update<Assign>(values.data(),
                                 StochasticPointers<P>{parameter.data(), first_index, 55},
                                 StatePointers<0, float>{}, n, size, {});
            wrong += same_bits(parameter, expected) ? 0 : 1;
        }
    }
    return wrong;
}

TEMPLATE_TEST_CASE(
    "Each element takes the random bits of its number, with every instruction set and length",
    "[host][kernel]", bfloat16, float16) {
    CHECK(differences<TestType>(0, 1.0F) == 0);
    CHECK(differences<TestType>(1003, 1e-6F) == 0); // subnormal float16
    CHECK(differences<TestType>(1003, 1e5F) == 0);  // beyond float16
    CHECK(differences<TestType>((std::uint64_t{3} << 32U) - 77, 1.0F) == 0);
}

TEST_CASE("A range may be cut anywhere", "[host][kernel]") {
    auto const hyper = AdamW::hyper({}, 1e-3, 1);
    constexpr std::size_t n = 777;
    auto const gradient = kernel_inputs<float>(n, 8);
    auto const run = [&](std::vector<std::size_t> const& cuts) {
        std::vector<bfloat16> parameter(n, from_float<bfloat16>(0.7F));
        std::vector<float> first(n), second(n);
        for (std::size_t part = 0; part + 1 < cuts.size(); ++part) {
            std::size_t const begin = cuts[part];
            host::update<AdamW>(
                gradient.data() + begin,
                StochasticPointers<bfloat16>{parameter.data() + begin, 100 + begin, 42},
                StatePointers<2, float>{{first.data() + begin, second.data() + begin}},
                cuts[part + 1] - begin, 1.0F, hyper);
        }
        return parameter;
    };
    CHECK(same_bits(run({0, n}), run({0, 3, 64, 65, 500, n})));
}

/// Returns the mean of 4096 parameters that start at 1.5, after 100 steps of -`change`.
template <class Weights>
double mean_after(Weights const& weights, std::vector<bfloat16> const& parameter, float change) {
    std::vector<float> const gradient(parameter.size(), change);
    std::vector<float> momentum(parameter.size());
    for (std::uint64_t step = 1; step <= 100; ++step) {
        Sgd::Options options;
        options.momentum = 0.0;
        host::update<Sgd>(gradient.data(), weights(step),
                          StatePointers<Sgd::states, float>{{momentum.data()}}, parameter.size(),
                          1.0F, Sgd::hyper(options, 1.0, step));
    }
    double sum = 0.0;
    for (auto const value : parameter) {
        sum += static_cast<double>(to_float(value));
    }
    return sum / static_cast<double>(parameter.size());
}

TEST_CASE("Updates of less than half a unit survive on average and vanish with plain rounding",
          "[host][kernel]") {
    constexpr std::size_t n = 4096;
    // Between 1 and 2 bfloat16 numbers are 2^-7 apart. Five standard deviations of the mean: 5 *
    // sqrt(100 / 4096) * 2^-8 = 0.0031.
    for (float const change : {0x1p-8F - 0x1p-16F, 0x1p-10F, 0x1p-14F}) {
        std::vector<bfloat16> stochastic(n, from_float<bfloat16>(1.5F));
        std::vector<bfloat16> plain(n, from_float<bfloat16>(1.5F));
        double const expected = 1.5 - 100.0 * static_cast<double>(change);
        double const mean = mean_after(
            [&](std::uint64_t step) {
                return StochasticPointers<bfloat16>{stochastic.data(), 0, ops::random_key(1, step)};
            },
            stochastic, change);
        CHECK(std::fabs(mean - expected) < 0.0031);
        CHECK(mean_after(
                  [&](std::uint64_t) {
                      return MasterPointers<bfloat16, bfloat16>{plain.data(), nullptr};
                  },
                  plain, change)
              == 1.5);
    }
}

} // namespace

} // namespace zero::test::stochastic_update_kernel_test
