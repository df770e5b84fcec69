#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"

#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/stage/with_stage.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// The training has the same bits whether the engine or the caller owns parameters and gradients,
// and caller-owned memory is always up to date.

namespace zero::test::storage_test {

namespace {

constexpr int world = 3;

enum class GradientMemory { buckets, caller_owned, handed_over, overwritten };

/// The state of one rank after three steps: all parameters, and those in caller-owned memory (empty
/// if the engine owns them).
struct RankState {
    std::vector<std::vector<float>> full;
    std::vector<std::vector<float>> caller_owned;
};

std::vector<ParameterSpec> specs() {
    auto list = toy_specs();
    list[2].trainable = false; // a frozen gap inside an adopted block
    return list;
}

float gradient_of(std::uint64_t rank, std::uint64_t step, std::size_t unit, std::size_t parameter,
                  std::size_t i) {
    return noise(3 + rank, step * 10 + unit, parameter, i);
}

template <int N>
std::vector<RankState> train(Storage storage, GradientMemory memory, double learning_rate = 0.01) {
    return on_ranks<RankState>(world, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        auto parameters = registration<float>(specs());
        std::vector<float> block(2048, -7.0F), gradients(2048, 99.0F);
        std::size_t begin = 5; // unaligned
        for (std::size_t index = 0; index < parameters.size(); ++index) {
            auto& parameter = parameters[index];
            if (storage != Storage::owned) {
                parameter.data = block.data() + begin;
                for (std::size_t i = 0; i < parameter.elements; ++i) {
                    parameter.data[i] =
                        rank == 0 ? noise(1, index, i) : 1000.0F; // the values of rank 0 count
                }
                parameter.initialise = nullptr;
            }
            if (memory == GradientMemory::caller_owned && parameter.trainable) {
                parameter.gradient = gradients.data() + begin;
            }
            begin += parameter.elements + (index == 3 ? 11 : 0);
        }
        typename ZeroStage<N>::Options options{
            .storage = storage,
            .reduction = {.schedule =
                              ReductionSchedule::every_micro_step}}; // the same in every stage
        if (storage == Storage::adopted) {
            options.adopted_block = block;
        }
        ZeroStage<N> engine(communicator, parameters, options);
        auto const& layout = engine.layout();
        for (std::uint64_t step = 0; step < 3; ++step) {
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(2)) {
                for (std::size_t unit = layout.units(); unit-- > 0;) {
                    auto const weights = engine.acquire(unit);
                    for (std::size_t const index : layout.unit_parameters(unit)) {
                        if (!layout.parameter(index).trainable) {
                            continue;
                        }
                        std::size_t const key = step * 2 + micro_step;
                        if (memory == GradientMemory::handed_over) {
                            std::vector<float> transient;
                            for (std::size_t i = 0; i < layout.parameter(index).elements; ++i) {
                                transient.push_back(gradient_of(rank, key, unit, index, i));
                            }
                            engine.hand_over(unit, index, transient).synchronise();
                        } else {
                            bool const overwrites = memory == GradientMemory::overwritten
                                                    && layout.parameter(index).units.size() == 1;
                            auto const gradient = engine.gradients(unit, {}, !overwrites)[index];
                            for (std::size_t i = 0; i < gradient.size(); ++i) {
                                gradient[i] = (overwrites ? 0.0F : gradient[i])
                                              + gradient_of(rank, key, unit, index, i);
                            }
                        }
                    }
                    engine.gradients_ready(unit);
                }
            }
            (void)engine.step(learning_rate);
        }
        RankState trained;
        trained.full = full_parameters(engine);
        for (auto const& parameter : parameters) {
            if (storage != Storage::owned) {
                trained.caller_owned.emplace_back(parameter.data.get(),
                                                  parameter.data + parameter.elements);
            }
        }
        if (storage != Storage::owned && (block[4] != -7.0F || block[begin] != -7.0F)) {
            throw std::logic_error("memory outside the parameters was written");
        }
        return trained;
    });
}

void check_same(std::vector<RankState> const& ranks,
                std::vector<std::vector<float>> const& expected) {
    for (RankState const& trained : ranks) {
        CHECK((trained.full == expected)); // in parentheses, so a failure prints no values
        CHECK((trained.caller_owned.empty() || trained.caller_owned == expected));
    }
}

} // namespace

TEMPLATE_TEST_CASE_SIG("Owned, adopted and scattered parameters are trained to the same bits", "",
                       ((int N), N), 0, 1, 2) {
    auto const expected = train<0>(Storage::owned, GradientMemory::buckets)[0].full;
    CHECK((expected != train<0>(Storage::owned, GradientMemory::buckets, 0.0100001)[0].full));
    for (auto const memory :
         {GradientMemory::buckets, GradientMemory::caller_owned, GradientMemory::handed_over}) {
        check_same(train<N>(Storage::owned, memory), expected);
        check_same(train<N>(Storage::scattered, memory), expected);
    }
    check_same(train<N>(Storage::adopted, GradientMemory::caller_owned), expected);
    check_same(train<N>(Storage::adopted, GradientMemory::handed_over), expected);
}

TEMPLATE_TEST_CASE_SIG(
    "Gradients in buckets, in caller-owned memory, handed over or overwritten give the same bits",
    "", ((int N), N), 0, 2, 3) {
    auto const expected = train<0>(Storage::owned, GradientMemory::buckets)[0].full;
    for (auto const memory : {GradientMemory::buckets, GradientMemory::caller_owned,
                              GradientMemory::handed_over, GradientMemory::overwritten}) {
        INFO("memory " << static_cast<int>(memory));
        check_same(train<N>(Storage::owned, memory), expected);
    }
}

TEST_CASE("A gradient in caller-owned memory is read once, with its own unit and not with units "
          "whose gradients lie around it") {
    std::array<std::vector<float>, 5> gradients;
    std::vector<Parameter<float>> parameters;
    for (std::size_t index = 0; index < gradients.size(); ++index) {
        gradients[index].assign(64 + index, 1.0F);
        parameters.push_back({.name = std::string(1, static_cast<char>('a' + index)),
                              .elements = gradients[index].size(),
                              .units = {index % 2}});
        parameters.back().gradient = gradients[index].data();
    }
    LoopbackCommunicator communicator = std::move(LoopbackCommunicator::make_group(1).front());
    ZeroStage<2, SingleBucketer> engine(communicator, parameters);
    engine.begin_step();
    engine.begin_micro_step(MicroStep::last);
    auto const write = [&](std::size_t unit, float value) {
        for (std::size_t index = unit; index < gradients.size(); index += 2) {
            std::fill(gradients[index].begin(), gradients[index].end(), value);
        }
    };
    write(1, 2.0F); // b and d, between a, c and e
    engine.gradients_ready(1);
    write(0, 3.0F);
    engine.gradients_ready(0);
    engine.end_micro_step();
    write(0, 100.0F); // the caller may write again
    write(1, 100.0F);
    auto const norms = engine.gradient_norms(NormKind::infinity, NormScope::parameters);
    CHECK(std::vector<double>(norms.begin(), norms.end())
          == std::vector<double>{3.0, 2.0, 3.0, 2.0, 3.0});
    (void)engine.step(0.0);
}

TEST_CASE("Frozen parameters keep their values in every storage") {
    for (auto const& ranks : {train<0>(Storage::scattered, GradientMemory::buckets),
                              train<2>(Storage::adopted, GradientMemory::caller_owned),
                              train<3>(Storage::owned, GradientMemory::buckets)}) {
        for (RankState const& trained : ranks) {
            for (std::size_t const frozen : {2U, 4U}) {
                for (std::size_t i = 0; i < trained.full[frozen].size(); ++i) {
                    CHECK(trained.full[frozen][i] == noise(1, frozen, i));
                }
            }
            CHECK(trained.full[1][0] != noise(1, 1, 0));
        }
    }
}

} // namespace zero::test::storage_test
