#include "state_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/core/convert.hpp>
#include <zero/stage/gathered_parameters.hpp>
#include <zero/stage/live_changes.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <sys/resource.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Linear layers that are trained, then frozen beside low-rank adapters, and trained on after these
// were merged. A batch is added in a tree, so that no bit depends on the number of ranks.

namespace zero::test::adapters_test {

namespace {

using namespace state_model;

constexpr std::size_t layers = 2;
constexpr std::size_t out = 13;
constexpr std::size_t in = 11;
constexpr std::size_t rank_of_adapters = 3;
constexpr float scale = 0.5F;

/// No file can be opened while it lives.
class NoFiles {
public:
    NoFiles() {
        ::getrlimit(RLIMIT_NOFILE, &_before);
        rlimit none = _before;
        none.rlim_cur = 0;
        ::setrlimit(RLIMIT_NOFILE, &none);
    }
    NoFiles(NoFiles const&) = delete;
    NoFiles& operator=(NoFiles const&) = delete;
    ~NoFiles() { ::setrlimit(RLIMIT_NOFILE, &_before); }

private:
    rlimit _before{};
};

std::string weight(std::size_t layer) {
    return "layer" + std::to_string(layer);
}

/// Adds factor * b a, of a row-major matrix.
void add_product(std::span<float> matrix, std::span<float const> b, std::span<float const> a,
                 float factor) {
    for (std::size_t row = 0; row < out; ++row) {
        for (std::size_t column = 0; column < in; ++column) {
            float sum = 0.0F;
            for (std::size_t k = 0; k < rank_of_adapters; ++k) {
                sum += b[row * rank_of_adapters + k] * a[k * in + column];
            }
            matrix[row * in + column] += factor * sum;
        }
    }
}

template <class T>
std::vector<float> as_floats(std::span<T const> values) {
    std::vector<float> floats;
    for (T const value : values) {
        floats.push_back(to_float(value));
    }
    return floats;
}

/// The weights that the forward pass uses: with adapters, if there are any.
template <class Stage>
std::vector<float> matrix_of(Stage& engine, std::size_t layer, std::size_t adapters) {
    auto const weights = engine.acquire(layer);
    auto matrix = as_floats(weights[layer]);
    if (adapters != 0) {
        auto const a = as_floats(weights[adapters + 2 * layer]);
        auto const b = as_floats(weights[adapters + 2 * layer + 1]);
        add_product(matrix, b, a, scale);
    }
    return matrix;
}

/// A step of least squares. @param adapters index of the first one; 0: there are none
template <class Stage>
void train_step(Stage& engine, std::uint64_t step, std::size_t adapters) {
    engine.begin_step();
    for (auto const micro_step : engine.micro_steps()) {
        std::size_t const batch = engine.micro_batch(micro_step);
        for (std::size_t layer = layers; layer-- > 0;) {
            std::vector<float> const matrix = matrix_of(engine, layer, adapters);
            auto const weights = engine.acquire(layer);
            auto const gradients = engine.gradients(layer);
            for (std::size_t row = 0; row < out; ++row) {
                float error = noise(3, step, batch, row);
                for (std::size_t column = 0; column < in; ++column) {
                    error += matrix[row * in + column] * noise(4, step, batch, column);
                }
                for (std::size_t column = 0; column < in; ++column) {
                    float const of_weight = error * noise(4, step, batch, column);
                    if (adapters == 0) {
                        gradients[layer][row * in + column] += of_weight;
                    }
                    for (std::size_t k = 0; adapters != 0 && k < rank_of_adapters; ++k) {
                        std::size_t const a = adapters + 2 * layer;
                        std::size_t const at = row * rank_of_adapters + k;
                        gradients[a][k * in + column] +=
                            scale * of_weight * to_float(weights[a + 1][at]);
                        gradients[a + 1][at] +=
                            scale * of_weight * to_float(weights[a][k * in + column]);
                    }
                }
            }
            engine.gradients_ready(layer);
        }
    }
    engine.step(0.02);
}

/// Adapters as users register them: b is zero, so they change nothing at first.
template <class Stage>
std::vector<typename Stage::Registration> adapters() {
    using T = typename Stage::ParameterType;
    std::vector<typename Stage::Registration> list;
    for (std::size_t layer = 0; layer < layers; ++layer) {
        list.push_back({.name = weight(layer) + ".lora_a",
                        .units = {layer},
                        .shape = {rank_of_adapters, in},
                        .initialise =
                            [layer](std::size_t begin, std::span<T> values) {
                                for (std::size_t i = 0; i < values.size(); ++i) {
                                    values[i] = from_float<T>(noise(5, layer, begin + i));
                                }
                            },
                        .is_deterministic = true});
        list.push_back({.name = weight(layer) + ".lora_b",
                        .units = {layer},
                        .shape = {out, rank_of_adapters}});
    }
    return list;
}

struct Seen {
    Bits bits{}; ///< the whole state after each phase
    std::vector<float> before{}, with_adapters{}, merged{};
    std::size_t first = 0;
    bool operator==(Seen const&) const = default;
};

template <class Stage>
Seen run(int world, bool thaws_first, typename Stage::Options options = {}) {
    options.reduction.micro_batches = 4;
    NoFiles const none;
    auto const seen = on_ranks<Seen>(world, [&](LoopbackCommunicator& communicator) {
        std::vector<float> start(out * in);
        for (std::size_t i = 0; i < start.size(); ++i) {
            start[i] = noise(6, i);
        }
        std::vector<typename Stage::ParameterType> values;
        for (float const value : start) {
            values.push_back(from_float<typename Stage::ParameterType>(value));
        }
        std::vector<typename Stage::Registration> parameters;
        std::vector<std::string> names;
        for (std::size_t layer = 0; layer < layers; ++layer) {
            parameters.push_back({.name = weight(layer),
                                  .initial = values.data(),
                                  .units = {layer},
                                  .shape = {out, in}});
            names.push_back(weight(layer));
        }
        Stage engine(communicator, parameters, options);
        Seen own;
        std::uint64_t step = 0;
        auto const train = [&](std::size_t first) {
            for (int count = 0; count < 3; ++count) {
                train_step(engine, step++, first);
            }
            Bits const bits = state_of(engine);
            own.bits.insert(own.bits.end(), bits.begin(), bits.end());
        };
        train(0);
        own.before = matrix_of(engine, 1, 0);

        set_trainable(engine, names, false);
        own.first = add_parameters(engine, adapters<Stage>());
        train(own.first);
        own.with_adapters = matrix_of(engine, 1, own.first);

        if (thaws_first) {
            set_trainable(engine, names, true);
        }
        std::vector<std::string> merged;
        for (std::string const& name : names) {
            std::string const a = name + ".lora_a";
            std::string const b = name + ".lora_b";
            auto gathered =
                gather(engine, {std::string_view(name), a, b}, Gather::all_write_equally);
            add_product(gathered.writable(name), gathered.values(b), gathered.values(a), scale);
            gathered.commit();
            merged.push_back(a);
            merged.push_back(b);
        }
        remove_parameters(engine, merged);
        own.merged = TrainingState(engine).full_fp32_parameter(1);
        if (!thaws_first) {
            set_trainable(engine, names, true);
        }
        train(0);
        return own;
    });
    for (Seen const& other : seen) {
        if (!(other == seen[0])) {
            return {};
        }
    }
    return seen[0];
}

float largest_difference(std::vector<float> const& a, std::vector<float> const& b) {
    float most = a.size() == b.size() ? 0.0F : 1e9F;
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
        most = std::fmax(most, std::fabs(a[i] - b[i]));
    }
    return most;
}

} // namespace

TEST_CASE("Adapters are added, trained and merged with the same bits in every stage, on every "
          "number of ranks, and without a file",
          "[stage][rebuild]") {
    Seen const expected = run<ZeroStage<0, TreeReduction<>>>(1, true);
    CHECK(expected.first == layers);
    CHECK(expected.bits.size() > 1000);
    // Merged weights are those of the forward pass with adapters, which changed them.
    CHECK(largest_difference(expected.merged, expected.with_adapters) == 0.0F);
    CHECK(largest_difference(expected.before, expected.with_adapters) > 1e-3F);
    in_every_stage([&]<int N>() {
        for (int const world : {1, 2, 4}) {
            CHECK((run<ZeroStage<N, TreeReduction<>>>(world, true) == expected));
        }
        // The order of the calls does not matter where parameters are floats.
        CHECK((run<ZeroStage<N, TreeReduction<>>>(2, false) == expected));
    });
}

TEST_CASE("Thawed before the merge, 16-bit weights get its float product", "[stage][rebuild]") {
    using Stage = ZeroStage<3, TreeReduction<float>, Parameters<bfloat16>>;
    Seen const thawed = run<Stage>(2, true);
    Seen const frozen = run<Stage>(2, false);
    // The adapters of both runs have master weights, which the forward pass rounds.
    auto const rounded = [](std::vector<float> values) {
        for (float& value : values) {
            value = to_float(from_float<bfloat16>(value));
        }
        return values;
    };
    CHECK(thawed.merged.size() == out * in);
    CHECK(rounded(thawed.merged) == frozen.merged);
    CHECK(rounded(frozen.merged) == frozen.merged);
    CHECK(rounded(thawed.merged) != thawed.merged);
    CHECK((run<ZeroStage<1, TreeReduction<float>, Parameters<bfloat16>>>(4, true) == thawed));
}

} // namespace zero::test::adapters_test
