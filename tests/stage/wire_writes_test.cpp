#include "support/catch.hpp"
#include "wire_model.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/secondary.hpp>
#include <zero/host/delaying_queue.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/stage/gathered_parameters.hpp>
#include <zero/stage/offload.hpp>
#include <zero/stage/training_state.hpp>

#include "support/temporary_folder.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

// Weights in codes after each way to write parameters, after a rebuild of buckets, in groups of
// ranks, and with states in files: what is read follows from the master weights.

namespace zero::test::wire_writes_test {

namespace {

using namespace wire_model;

template <int N, class... Policies>
using Coded = ZeroStage<N, Parameters<bfloat16>, Wire<Int8Blocks>, Policies...>;

/// Parameters and states after a change between steps, and after one more step.
struct Result {
    Values changed, masters, next;
    int is_right = 0;
    friend bool operator==(Result const&, Result const&) = default;
};

template <class Stage, class Change>
std::vector<Result> after(Change const& change, typename Stage::Options const& given = {}) {
    return on_ranks<Result>(3, [&](LoopbackCommunicator& all) {
        auto const rank = static_cast<std::uint64_t>(all.rank());
        host::DelayingQueue queue(rank);
        auto options = given;
        options.reduction.schedule = ReductionSchedule::boundary;
        options.communication_queue = &queue;
        Stage engine(all, registration<bfloat16>(toy_specs()), options);
        (void)step_of(engine, rank, 0).report();
        change(engine);
        Result result;
        result.is_right = reads_codes<Int8Blocks>(engine) ? 1 : 0;
        result.changed = full_parameters(engine);
        TrainingState state(engine);
        for (std::size_t parameter = 0; parameter < toy_specs().size(); ++parameter) {
            result.masters.push_back(state.full_fp32_parameter(parameter));
        }
        (void)step_of(engine, rank, 1).report();
        result.is_right += reads_codes<Int8Blocks>(engine) ? 1 : 0;
        result.next = full_parameters(engine);
        return result;
    });
}

template <class Change>
std::vector<Result> check_write(char const* what, Change const& change) {
    CAPTURE(what);
    auto const expected = after<Coded<3>>(change);
    for (Result const& result : expected) {
        CHECK(result.is_right == 2);
        CHECK((result == expected[0]));
    }
    CHECK((after<Coded<1>>(change) == expected));
    CHECK((after<Coded<2, RoundRobinPartitioner>>(change) == expected));
    return expected;
}

} // namespace

TEST_CASE("Every way to write parameters between steps leaves the same bits in every stage") {
    auto const untouched = check_write("nothing", [](auto&) {});
    auto const set = check_write("set_full_fp32_parameter", [](auto& engine) {
        TrainingState state(engine);
        state.set_full_fp32_parameter(5, std::vector<float>(64, 0.3F));
    });
    CHECK(set[0].masters[5] == std::vector<float>(64, 0.3F));
    CHECK(set[0].masters[1] == untouched[0].masters[1]); // exact, though read in codes
    CHECK(set[0].changed[1] == untouched[0].changed[1]);
    auto const gathered = check_write("gather", [](auto& engine) {
        GatheredParameters<typename std::remove_reference_t<decltype(engine)>::EngineType> weights(
            engine, std::vector<std::size_t>{1, 5}, Gather::one_rank_writes);
        weights.writable(5)[3] = 7.0F;
    });
    CHECK(gathered[0].masters[1] == untouched[0].masters[1]);
    CHECK(gathered[0].masters[5][3] == 7.0F);
    CHECK(gathered[0].masters[5][4] == untouched[0].masters[5][4]);
    auto const published = check_write("publish_master_weights", [](auto& engine) {
        engine.for_each_owned_slice([](auto const& slice) {
            for (auto& master : slice.master) {
                master *= 2.0F;
            }
        });
        TrainingState(engine).publish_master_weights();
    });
    CHECK(published[0].masters[1][2] == 2.0F * untouched[0].masters[1][2]);
    auto const values = check_write("values of a visitor", [](auto& engine) {
        engine.for_each_owned_slice([](auto const& slice) {
            for (auto& value : slice.values) {
                value = from_float<bfloat16>(5.0F);
            }
        });
        TrainingState(engine).publish_master_weights();
    });
    CHECK(values[0].masters[1] == std::vector<float>(500, 5.0F));
    (void)check_write("changed by every rank", [](auto& engine) {
        engine.for_each_owned_slice([](auto const& slice) {
            for (std::size_t i = 0; i < slice.values.size(); ++i) {
                slice.values[i] = from_float<bfloat16>(noise(9, slice.parameter, slice.begin + i));
            }
        });
        engine.parameters_changed();
    });
}

TEST_CASE("What a visitor wrote and a step replaced is not taken over later") {
    auto const masters = [](bool writes) {
        return on_ranks<Values>(2, [&](LoopbackCommunicator& all) {
            auto const rank = static_cast<std::uint64_t>(all.rank());
            Coded<2> engine(all, registration<bfloat16>(toy_specs()));
            if (writes) {
                engine.for_each_owned_slice([](auto const& slice) {
                    for (auto& value : slice.values) {
                        value = from_float<bfloat16>(5.0F);
                    }
                });
                for (auto const& weights : {engine.acquire(0)}) { // nothing is published yet
                    (void)weights;
                }
            }
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                run_micro_step(engine, rank, 0, micro_step);
            }
            (void)engine.step(0.05).report();
            TrainingState(engine).publish_master_weights();
            return own_masters(engine);
        });
    };
    CHECK(masters(true) == masters(false));
}

TEST_CASE("What a visitor wrote stays written where another parameter is set") {
    auto const written = []<class Stage>() {
        return on_ranks<float>(2, [](LoopbackCommunicator& communicator) {
            Stage engine(communicator, registration<bfloat16>(toy_specs()), {});
            engine.for_each_owned_slice([](auto const& slice) {
                for (auto& value : slice.values) {
                    value = from_float<bfloat16>(5.0F);
                }
            });
            TrainingState state(engine);
            state.set_full_fp32_parameter(2, std::vector<float>(toy_specs()[2].elements, 3.0F));
            state.publish_master_weights();
            return state.full_fp32_parameter(1)[3];
        });
    };
    using P = Parameters<bfloat16>;
    std::vector<float> const expected{5.0F, 5.0F};
    CHECK(written.operator()<ZeroStage<2, P>>() == expected);
    CHECK(written.operator()<ZeroStage<2, P, Wire<Int8Blocks>>>() == expected);
    CHECK(written.operator()<ZeroStage<3, P, Wire<Int8Blocks>>>() == expected);
}

TEST_CASE("A rebuild of buckets changes no bit of weights in codes") {
    auto const run = [&]<class Stage>(Stage const*, bool rebuilds) {
        return on_ranks<Result>(3, [&](LoopbackCommunicator& all) {
            auto const rank = static_cast<std::uint64_t>(all.rank());
            typename Stage::Options options;
            options.reduction.schedule = ReductionSchedule::boundary;
            options.bucketer.bucket_bytes = 1024;
            if (rebuilds) {
                options.rebuild_buckets = Stage::in_ready_order;
                options.leases_until_rebuild = 8;
            }
            Stage engine(all, registration<bfloat16>(toy_specs()), options);
            Result result;
            for (std::uint64_t step = 0; step < 3; ++step) {
                (void)step_of(engine, rank, step).report();
                result.is_right += reads_codes<Int8Blocks>(engine) ? 1 : 0;
            }
            result.next = full_parameters(engine);
            return result;
        });
    };
    using Two = Coded<2, SizeCappedBucketer>;
    using Three = Coded<3, SizeCappedBucketer>;
    auto const expected = run(static_cast<Two const*>(nullptr), false);
    CHECK(expected[0].is_right == 3);
    CHECK((run(static_cast<Two const*>(nullptr), true) == expected));
    CHECK((run(static_cast<Three const*>(nullptr), true) == expected));
}

namespace {

template <class Stage>
Values train(auto& communicator, std::uint64_t rank,
             std::function<void(typename Stage::Options&)> const& set = {}) {
    typename Stage::Options options;
    options.reduction.schedule = ReductionSchedule::boundary;
    if (set) {
        set(options);
    }
    Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
    for (std::uint64_t step = 0; step < 3; ++step) {
        (void)step_of(engine, rank, step).report();
    }
    return reads_codes<Int8Blocks>(engine) ? full_parameters(engine) : Values();
}

template <class Groups, class... Policies>
std::vector<Values> on_groups(int world, auto const& options) {
    std::vector<Values> results(static_cast<std::size_t>(world));
    run_ranks<Groups>(world, test_time_out, options, [&](Groups& groups) {
        auto const rank = static_cast<std::size_t>(groups.rank());
        results[rank] =
            train<ZeroStage<3, Parameters<bfloat16>, Wire<Int8Blocks>, Groups, Policies...>>(groups,
                                                                                             rank);
    });
    return results;
}

} // namespace

TEST_CASE("Secondary copies change no bit of weights in codes, and replicas read the same") {
    auto const flat = on_ranks<Values>(4, [](LoopbackCommunicator& all) {
        return train<Coded<3>>(all, static_cast<std::uint64_t>(all.rank()));
    });
    CHECK(!flat[0].empty());
    CHECK((on_groups<Groups<LoopbackCommunicator, Secondary>>(
               4, Groups<LoopbackCommunicator, Secondary>::Options{.secondary = 2})
           == flat));
    using Hosts = Groups<LoopbackCommunicator, Hybrid>;
    auto const third = on_groups<Hosts>(4, Hosts::Options{.shard = 2});
    CHECK(!third[0].empty());
    std::vector<Values> second(4);
    run_ranks<Hosts>(4, test_time_out, {.shard = 2}, [&](Hosts& hosts) {
        auto const rank = static_cast<std::size_t>(hosts.rank());
        second[rank] =
            train<ZeroStage<2, Parameters<bfloat16>, Wire<Int8Blocks>, Hosts>>(hosts, rank);
    });
    CHECK((second == third));
    CHECK((third == std::vector<Values>(4, third[0])));
}

TEST_CASE("States in files change no bit of weights in codes") {
    TemporaryFolder const folder;
    auto const in_files = [&](auto& options) {
        options.offload.path = folder.path().string();
        options.offload.chunk_bytes = 4096;
        options.offload.allow_page_cache = true;
    };
    auto const flat = on_ranks<Values>(2, [](LoopbackCommunicator& all) {
        return train<Coded<3>>(all, static_cast<std::uint64_t>(all.rank()));
    });
    using States = Offload<To<FileTier, BufferKind::optimizer_state>>;
    using Masters = Offload<To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>>;
    CHECK((on_ranks<Values>(2,
                            [&](LoopbackCommunicator& all) {
                                return train<Coded<3, Masters>>(
                                    all, static_cast<std::uint64_t>(all.rank()), in_files);
                            })
           == flat));
    CHECK((on_ranks<Values>(2,
                            [&](LoopbackCommunicator& all) {
                                return train<Coded<2, States>>(
                                    all, static_cast<std::uint64_t>(all.rank()), in_files);
                            })
           == flat));
}

TEST_CASE("Ranks with another codec, or none, get a LayoutMismatch that says so") {
    for (int const other : {0, 1}) {
        auto const outcomes = run_and_observe(3, [&](LoopbackCommunicator& all) {
            auto const parameters = registration<bfloat16>(toy_specs());
            if (all.rank() != 1) {
                Coded<2> const engine(all, parameters);
            } else if (other == 0) {
                ZeroStage<2, Parameters<bfloat16>> const engine(all, parameters);
            } else {
                ZeroStage<2, Parameters<bfloat16>, Wire<Int4Blocks>> const engine(all, parameters);
            }
        });
        for (Outcome const& outcome : outcomes.ranks) {
            CHECK(outcome.type == "LayoutMismatch");
            CHECK_THAT(outcome.message,
                       contains_text("different options or policies: 'wire'; give"));
        }
    }
}

TEST_CASE("An adopted block whose parameters share a block of 64 elements is refused, and another "
          "one has the same bits") {
    auto const refused = run_and_observe(2, [](LoopbackCommunicator& all) {
        auto parameters = registration<bfloat16>(toy_specs());
        Coded<2>::Options options{.storage = Storage::adopted};
        auto const memory = provide_memory(parameters, options);
        Coded<2> const engine(all, parameters, options);
    });
    for (Outcome const& outcome : refused.ranks) {
        CHECK(outcome.type == "InvalidArgument");
        CHECK_THAT(outcome.message,
                   contains_text("does not begin at a multiple of 64 elements of the adopted "
                                 "block, so its codes would hold elements of other parameters"));
    }
    std::vector<ParameterSpec> const specs{
        {"first", 192, {0}, 0, true}, {"second", 640, {1}, 0, true}, {"third", 100, {2}, 0, true}};
    auto const run = [&](Storage storage, std::size_t bucket_bytes) {
        return on_ranks<Values>(2, [&](LoopbackCommunicator& all) {
            auto parameters = registration<bfloat16>(specs);
            Coded<2>::Options options{.storage = storage,
                                      .bucketer = {.bucket_bytes = bucket_bytes}};
            options.reduction.schedule = ReductionSchedule::boundary;
            auto const memory = provide_memory(parameters, options);
            Coded<2> engine(all, parameters, options);
            for (std::uint64_t step = 0; step < 3; ++step) {
                (void)step_of(engine, static_cast<std::uint64_t>(all.rank()), step).report();
            }
            return reads_codes<Int8Blocks>(engine) ? full_parameters(engine) : Values();
        });
    };
    auto const owned = run(Storage::owned, 1U << 20U);
    CHECK(!owned[0].empty());
    CHECK((run(Storage::adopted, 1U << 20U) == owned));
    CHECK((run(Storage::adopted, 512) == owned));
}

} // namespace zero::test::wire_writes_test
