#pragma once

#include "cuda/device_tree.cuh"
#include "cuda/shared_device.cuh"

#include "support/ranks.hpp"
#include "support/stages.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/secondary.hpp>
#include <zero/cuda/nccl_memory_resource.hpp>
#include <zero/cuda/owned_stream.hpp>
#include <zero/stage/update_on_host.hpp>
#include <zero/stage/wire.hpp>
#include <zero/zero.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// Engines over NCCL, also with several ranks on a device: the ranks meet after they have allocated,
// and before they free.

namespace zero::test::nccl_engines {

using tree::Seen;
/// The streams of one rank. Engines share them: streams that are made later may share one queue of
/// the hardware, in which one rank would wait behind another.
struct Lane {
    explicit Lane(int on) : device(on) {
        cuda::detail::check(cudaSetDevice(on), "cudaSetDevice");
        compute.emplace();
        communication.emplace(cuda::StreamPriority::highest);
    }

    int device;
    std::optional<cuda::OwnedStream> compute;
    std::optional<cuda::OwnedStream> communication;
    cuda::detail::KeptEvents kept_events;
};

using Lanes = std::vector<std::unique_ptr<Lane>>;

inline Lanes make_lanes(std::vector<int> const& devices) {
    Lanes lanes;
    for (int const device : devices) {
        lanes.push_back(std::make_unique<Lane>(device));
    }
    return lanes;
}

/// A rank, its streams, and where it meets the others.
template <class C>
struct Member {
    C* communicator;
    cudaStream_t compute;
    cudaStream_t communication;
    Meeting* meeting;
    std::atomic<char const*>* doing; ///< printed if the rank hangs

    /// Waits for the work of this rank, then for all ranks.
    void settle(char const* what) const {
        *doing = what;
        communicator->synchronise();
        cuda::detail::check(cudaStreamSynchronize(communication), "cudaStreamSynchronize");
        cuda::detail::check(cudaStreamSynchronize(compute), "cudaStreamSynchronize");
        *doing = "meeting";
        meeting->arrive_and_wait();
        *doing = what;
    }

    /// Makes an engine over these ranks and returns `train(engine)`.
    template <class Stage, class Train>
    std::vector<Seen> with_engine(typename Stage::Communicator& over,
                                  typename Stage::Options options, Train const& train) const {
        options.compute_queue = compute;
        options.communication_queue = communication;
        *doing = "making an engine";
        Stage engine(
            over,
            registration<typename Stage::ParameterType, typename Stage::GradientType>(toy_specs()),
            options);
        settle("made an engine, and trains");
        std::vector<Seen> result = train(engine);
        engine.join();
        settle("destroying the engine");
        return result;
    }
};

/// The ranks of a group, each with its streams.
template <class C>
class Group {
public:
    Group(Lanes const& lanes, std::vector<C> ranks) : _lanes(&lanes), _ranks(std::move(ranks)) {}
    Group(Group const&) = delete;
    Group& operator=(Group const&) = delete;
    /// Ends the communicators together: one may wait for another.
    ~Group() {
        std::vector<std::thread> threads;
        for (std::size_t rank = 0; rank < _ranks.size(); ++rank) {
            threads.emplace_back([this, rank] {
                cuda::detail::ignore(cudaSetDevice((*_lanes)[rank]->device));
                C const own(std::move(_ranks[rank]));
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    }

    [[nodiscard]] int size() const { return static_cast<int>(_ranks.size()); }

    /// Runs `body(member)` on a thread of each rank, and joins what they saw.
    /// @throws std::runtime_error with the failures of all ranks
    template <class Body>
    std::vector<Seen> run(Body const& body) {
        std::size_t const world = _ranks.size();
        Meeting meeting(static_cast<std::ptrdiff_t>(world));
        std::vector<std::vector<Seen>> results(world);
        std::vector<std::string> failures(world);
        std::vector<std::atomic<char const*>> doing(world);
        std::atomic<std::size_t> ended = 0;
        std::vector<std::thread> threads;
        for (std::size_t rank = 0; rank < world; ++rank) {
            threads.emplace_back([&, rank] {
                Lane const& lane = *(*_lanes)[rank];
                doing[rank] = "beginning";
                try {
                    cuda::detail::check(cudaSetDevice(lane.device), "cudaSetDevice");
                    MeetingBackend::meeting() = &meeting;
                    StreamScope const scope(lane.compute->get());
                    Member<C> const member{&_ranks[rank], lane.compute->get(),
                                           lane.communication->get(), &meeting, &doing[rank]};
                    results[rank] = body(member);
                    member.settle("ending");
                } catch (std::exception const& error) {
                    failures[rank] = error.what();
                    _ranks[rank].abort("a rank failed");
                    meeting.arrive_and_drop();
                }
                ++ended;
            });
        }
        tell_of_hang(ended, doing);
        std::string text;
        for (std::size_t rank = 0; rank < world; ++rank) {
            threads[rank].join();
            if (!failures[rank].empty()) {
                text += "\nrank " + std::to_string(rank) + ", " + doing[rank].load() + ": "
                        + failures[rank];
            }
        }
        if (!text.empty()) {
            throw std::runtime_error(text);
        }
        return tree::joined(results);
    }

private:
    static void tell_of_hang(std::atomic<std::size_t> const& ended,
                             std::vector<std::atomic<char const*>> const& doing) {
        for (int turn = 0; ended != doing.size(); ++turn) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            if (turn == 1000) {
                for (std::size_t rank = 0; rank < doing.size(); ++rank) {
                    std::printf("hangs: rank %zu: %s\n", rank, doing[rank].load());
                }
                std::fflush(stdout);
            }
        }
    }

    Lanes const* _lanes;
    std::vector<C> _ranks;
};

/// Calls each collective once, so that NCCL connects the ranks while nothing else runs.
template <class C>
void connect(Group<C>& group) {
    (void)group.run([](Member<C> const& member) {
        auto const world = static_cast<std::size_t>(member.communicator->size());
        std::vector<std::size_t> even(world + 1);
        std::vector<std::size_t> uneven(world + 1);
        for (std::size_t rank = 0; rank < world; ++rank) {
            even[rank + 1] = even[rank] + 64;
            uneven[rank + 1] = uneven[rank] + (rank % 2 == 1 ? 3 : 7 + rank);
        }
        DeviceArray<float> const in(std::vector<float>(64 * world, 1.0F));
        DeviceArray<float> const out(64 * world);
        DeviceArray<std::int64_t> const integers(std::vector<std::int64_t>{1, 2});
        C& communicator = *member.communicator;
        cudaStream_t const stream = member.communication;
        member.settle("connecting");
        for (auto const& cuts : {even, uneven}) {
            communicator.reduce_scatter(in.data(), out.data(), cuts, stream);
            member.settle("reduce-scatter");
            communicator.all_gather(in.data(), out.data(), cuts, stream);
            member.settle("all-gather");
            communicator.exchange(in.data(), out.data(), cuts, stream);
            member.settle("exchange");
        }
        communicator.broadcast(out.data(), world, 0, stream);
        member.settle("broadcast");
        communicator.all_reduce_integers(integers.data(), 2, IntegerReduction::sum, stream);
        member.settle("integers");
        return std::vector<Seen>();
    });
}

constexpr std::uint64_t toy_steps = 3;
constexpr std::size_t toy_micro_steps = 2;
constexpr std::size_t toy_binades = 24; ///< the order of a sum shows

constexpr auto boundary = ReductionSchedule::boundary; ///< the default differs between stages

template <class Options>
void configure_toy(Options& options, ReductionSchedule schedule) {
    options.gradient_clipping = 0.5F;
    options.reduction.schedule = schedule;
}

/// Returns `use(communicator)`, with groups of two ranks if there is a role for them.
template <class Role, class C, class Use>
std::vector<Seen> with_role(C& everyone, Use const& use) {
    if constexpr (std::is_void_v<Role>) {
        return use(everyone);
    } else {
        typename Groups<C, Role>::Options options;
        if constexpr (std::is_same_v<Role, Secondary>) {
            options.secondary = 2;
        } else {
            options.shard = 2;
        }
        Groups<C, Role> groups(everyone, options);
        return use(groups);
    }
}

/// Trains the toy model on the loopback of the host.
template <class T, class Role = void, class... Policies>
std::vector<Seen> toy_on_host(int world, ReductionSchedule schedule = boundary) {
    auto const train = [schedule]<class C>(C& communicator) {
        using Stage =
            ZeroStage<std::is_same_v<Role, Secondary> ? 3 : 2, Parameters<T>, C, Policies...>;
        typename Stage::Options options;
        configure_toy(options, schedule);
        Stage engine(
            communicator,
            registration<typename Stage::ParameterType, typename Stage::GradientType>(toy_specs()),
            options);
        std::vector<Seen> result;
        for (std::uint64_t step = 0; step < toy_steps; ++step) {
            auto const report = run_step(engine, static_cast<std::uint64_t>(communicator.rank()),
                                         step, toy_micro_steps, 0.01, toy_binades)
                                    .report();
            result.push_back(tree::seen(engine, report, {}));
        }
        return result;
    };
    return tree::joined(on_ranks<std::vector<Seen>>(
        world, [&](LoopbackCommunicator& everyone) { return with_role<Role>(everyone, train); }));
}

/// Trains the toy model in an engine of a rank.
template <class Engine, class C>
std::vector<Seen> train_toy(Engine& engine, Member<C> const& member, int rank) {
    std::vector<Seen> result;
    for (std::uint64_t step = 0; step < toy_steps; ++step) {
        auto const report =
            run_device_step(engine, member.compute, static_cast<std::uint64_t>(rank), step,
                            toy_micro_steps, 0.01, toy_binades)
                .report();
        result.push_back(tree::seen_on_device(engine, report, {}));
    }
    return result;
}

/// The same on devices.
/// @tparam Stage over `C`, the policies but for a role
template <class Stage, class Role = void, class C>
std::vector<Seen> toy_on_devices(Group<C>& group, ReductionSchedule schedule = boundary) {
    return group.run([schedule](Member<C> const& member) {
        auto const train = [&]<class Over>(Over& over) {
            using Used = std::conditional_t<std::is_same_v<Over, C>, Stage,
                                            typename Stage::template with<Over>>;
            typename Used::Options options;
            configure_toy(options, schedule);
            return member.template with_engine<Used>(over, options, [&](Used& engine) {
                return train_toy(engine, member, over.rank());
            });
        };
        return with_role<Role>(*member.communicator, train);
    });
}

/// The same with the buffers of collectives in an arena, which has the plan of an engine without
/// one.
template <class Stage, class C>
std::vector<Seen> arena_on_devices(Group<C>& group, bool symmetric) {
    return group.run([symmetric](Member<C> const& member) {
        typename Stage::Options options;
        configure_toy(options, boundary);
        MemoryPlan plan;
        auto const look = [&](Stage& engine) {
            plan = engine.memory_plan();
            return std::vector<Seen>();
        };
        (void)member.template with_engine<Stage>(*member.communicator, options, look);
        // The engine has given back page-locked memory, which waits for the whole device.
        member.settle("making an arena");
        cuda::NcclMemoryResource memory(*member.communicator, MeetingBackend::default_memory(),
                                        member.communication,
                                        {.plan = plan, .symmetric = symmetric});
        options.memory = &memory;
        std::size_t const block = memory.nccl_bytes();
        std::size_t in_use = 0;
        auto result =
            member.template with_engine<Stage>(*member.communicator, options, [&](Stage& engine) {
                in_use = memory.arena_bytes_in_use();
                return train_toy(engine, member, member.communicator->rank());
            });
        if (in_use == 0 || in_use > block || memory.nccl_bytes() != block
            || memory.arena_bytes_in_use() != 0) {
            throw std::runtime_error("the arena has " + std::to_string(block) + " bytes, "
                                     + std::to_string(in_use) + " in use");
        }
        if (member.communicator->rank() == 0) {
            std::printf("an arena of %zu bytes%s\n", block,
                        memory.is_symmetric() ? ", a window" : "");
        }
        member.settle("freeing the arena");
        return result;
    });
}

/// Trains the model of micro-batches on devices.
template <class Stage, class C>
std::vector<Seen> tree_on_devices(Group<C>& group, tree::Job const& job) {
    return group.run([&](Member<C> const& member) {
        typename Stage::Options options;
        tree::configure(options, job);
        return member.template with_engine<Stage>(
            *member.communicator, options, [&](Stage& engine) {
                std::vector<Seen> result;
                for (std::uint64_t step = 0; step < job.steps; ++step) {
                    auto const report = tree::run_step_on_device(engine, member.compute, job, step);
                    result.push_back(tree::seen_on_device(engine, report, job));
                }
                return result;
            });
    });
}

/// Says where the bits of two runs differ first; empty if they are equal.
inline std::string difference(std::vector<Seen> const& found, std::vector<Seen> const& expected) {
    if (found.size() != expected.size()) {
        return std::to_string(found.size()) + " steps, not " + std::to_string(expected.size());
    }
    for (std::size_t step = 0; step < found.size(); ++step) {
        Seen const& a = found[step];
        Seen const& b = expected[step];
        std::string const where = "after step " + std::to_string(step) + ": ";
        std::array const kinds{
            std::tuple{"parameter", &a.trained.parameters, &b.trained.parameters},
            std::tuple{"master", &a.trained.masters, &b.trained.masters},
            std::tuple{"state", &a.trained.states, &b.trained.states}};
        for (auto const& [kind, ours, theirs] : kinds) {
            for (std::size_t index = 0; index < theirs->size(); ++index) {
                auto const& x = ours->at(index);
                auto const& y = theirs->at(index);
                for (std::size_t i = 0; i < y.size(); ++i) {
                    if (std::bit_cast<std::uint32_t>(x.at(i))
                        != std::bit_cast<std::uint32_t>(y[i])) {
                        return where + kind + ' ' + std::to_string(index) + ", element "
                               + std::to_string(i) + ": " + std::to_string(x[i]) + ", not "
                               + std::to_string(y[i]);
                    }
                }
            }
        }
        if (a.norm != b.norm) {
            return where + "norm " + std::to_string(std::bit_cast<double>(a.norm)) + ", not "
                   + std::to_string(std::bit_cast<double>(b.norm));
        }
        if (!(a == b)) {
            return where + "sizes, the step count or the scale differ";
        }
    }
    return {};
}

/// Checks that `run()` gives these bits. Prints a line, so that the output of a program that hangs
/// says where.
template <class Run>
void check(std::string const& what, std::vector<Seen> const& expected, Run const& run) {
    std::printf("%s: ", what.c_str());
    std::fflush(stdout);
    auto const start = std::chrono::steady_clock::now();
    std::string text;
    try {
        text = difference(run(), expected);
    } catch (std::exception const& error) {
        text = error.what();
    }
    std::chrono::duration<double> const took = std::chrono::steady_clock::now() - start;
    std::printf("%s (%.2f s)\n", text.empty() ? "equal" : text.c_str(), took.count());
    std::fflush(stdout);
    INFO(what);
    CHECK(text == "");
}

template <class C>
std::string name(Group<C> const& group, char const* order, int stage, DType type) {
    return std::to_string(group.size()) + " ranks, " + order + ", stage " + std::to_string(stage)
           + ", " + std::string(name_of(type));
}

/// Every stage has the bits of the loopback of the host.
template <class T, class C>
void check_toy(Group<C>& group, char const* order) {
    auto const expected = toy_on_host<T>(group.size());
    in_every_stage([&]<int N>() {
        check(name(group, order, N, dtype_of<T>()), expected, [&] {
            return toy_on_devices<ZeroStage<N, Parameters<T>, SizeCappedBucketer, C>>(group);
        });
    });
}

/// Stage 2, whose states the host holds and updates, and stage 3, of which it holds all, have the
/// bits of the loopback of the host.
template <class T, class C>
void check_host_update(Group<C>& group, char const* order) {
    using States = Offload<To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights>>;
    check(name(group, order, 2, dtype_of<T>()) + ", updates on the host",
          toy_on_host<T>(group.size()),
          [&] { return toy_on_devices<ZeroStage<2, Parameters<T>, C, States>>(group); });
    using All = Offload<To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights,
                           BufferKind::gradients, BufferKind::parameters>,
                        UpdateOnDevice>;
    constexpr auto schedule = ReductionSchedule::every_micro_step; // all is reduced where it is
    check(name(group, order, 3, dtype_of<T>()) + ", all on the host",
          toy_on_host<T>(group.size(), schedule),
          [&] { return toy_on_devices<ZeroStage<3, Parameters<T>, C, All>>(group, schedule); });
}

/// Gradients in codes, which are exchanged, have the bits of the loopback of the host.
template <class T, class C>
void check_codes(Group<C>& group, char const* order) {
    constexpr auto schedule = ReductionSchedule::every_micro_step; // more is encoded
    auto const compare = [&]<int N, class W>(W const&) {
        check(name(group, order, N, dtype_of<T>()) + ", gradients in codes",
              toy_on_host<T, void, W>(group.size(), schedule), [&] {
                  return toy_on_devices<ZeroStage<N, Parameters<T>, SizeCappedBucketer, C, W>>(
                      group, schedule);
              });
    };
    compare.template operator()<1>(Wire<Plain, Int8Blocks>());
    compare.template operator()<2>(Wire<Plain, Int4Blocks, ErrorFeedback<float>>());
    compare.template operator()<3>(Wire<Int8Blocks, Int4Blocks, ErrorFeedback<Int8Blocks>>());
}

/// Stages over groups of two ranks have the bits of the loopback of the host.
template <class T, class C>
void check_groups(Group<C>& group, char const* order) {
    auto const hybrid = toy_on_host<T, Hybrid>(group.size());
    in_every_stage([&]<int N>() {
        if constexpr (N > 0) { // stage 0 shards nothing
            check(name(group, order, N, dtype_of<T>()) + ", hybrid", hybrid, [&] {
                return toy_on_devices<ZeroStage<N, Parameters<T>, SizeCappedBucketer, C>, Hybrid>(
                    group);
            });
        }
    });
    if constexpr (std::is_same_v<T, float>) { // sums have the type that is sent between replicas
        using Sums = Offload<To<HostMemory, BufferKind::gradients>, UpdateOnDevice>;
        constexpr auto schedule = ReductionSchedule::every_micro_step;
        check(name(group, order, 2, dtype_of<T>()) + ", hybrid, sums on the host",
              toy_on_host<T, Hybrid>(group.size(), schedule), [&] {
                  return toy_on_devices<ZeroStage<2, Parameters<T>, C, Sums>, Hybrid>(group,
                                                                                      schedule);
              });
    }
    if (group.size() > 2) { // copies of two ranks among more than two
        check(name(group, order, 3, dtype_of<T>()) + ", secondary copies",
              toy_on_host<T, Secondary>(group.size()),
              [&] { return toy_on_devices<ZeroStage<3, Parameters<T>, C>, Secondary>(group); });
    }
}

/// Every stage with micro-batches that are added in a tree has the bits of one rank on the host.
template <class T, class C>
void check_tree(Group<C>& group, char const* order) {
    tree::Job const job{.micro_batches = 2 * static_cast<std::size_t>(group.size()), .steps = 2};
    auto const expected = tree::train<ZeroStage<2, Parameters<T>, TreeReduction<>>>(1, {}, job);
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Parameters<T>, SizeCappedBucketer, TreeReduction<>, C>;
        check(name(group, order, N, dtype_of<T>()) + ", in a tree", expected,
              [&] { return tree_on_devices<Stage>(group, job); });
    });
}

/// Every stage has the bits of the loopback of the host if its buffers lie in an arena.
template <class T, class C>
void check_arena(Group<C>& group, char const* order, bool symmetric = false) {
    auto const expected = toy_on_host<T>(group.size());
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Parameters<T>, SizeCappedBucketer, C>;
        check(name(group, order, N, dtype_of<T>()) + (symmetric ? ", a window" : ", an arena"),
              expected, [&] { return arena_on_devices<Stage>(group, symmetric); });
    });
}

/// In the order of NCCL's kernels for windows a stage repeats its bits, which are those of the
/// loopback if there are at most two ranks.
template <class T, class C>
void check_windows(Group<C>& group) {
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Parameters<T>, SizeCappedBucketer, C>;
        auto const expected =
            group.size() <= 2 ? toy_on_host<T>(group.size()) : arena_on_devices<Stage>(group, true);
        check(name(group, "NCCL's order", N, dtype_of<T>()) + ", a window", expected,
              [&] { return arena_on_devices<Stage>(group, true); });
    });
}

/// In the order of NCCL a stage repeats its bits, which are those of the loopback if there are at
/// most two ranks: a sum of two is the same in every order. Stages need not agree: NCCL chooses its
/// order by the operation and the size of a message.
template <class T, class C>
void check_library_order(Group<C>& group) {
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Parameters<T>, SizeCappedBucketer, C>;
        auto const expected =
            group.size() <= 2 ? toy_on_host<T>(group.size()) : toy_on_devices<Stage>(group);
        REQUIRE(expected.size() == toy_steps);
        CHECK(expected.back().steps == toy_steps);
        check(name(group, "NCCL's order", N, dtype_of<T>()), expected,
              [&] { return toy_on_devices<Stage>(group); });
    });
    if constexpr (std::is_same_v<T, float>) { // NCCL could write the sums where they lie
        using Sums = Offload<To<HostMemory, BufferKind::gradients>, UpdateOnDevice>;
        constexpr auto schedule = ReductionSchedule::every_micro_step;
        using Stage = ZeroStage<2, Parameters<T>, C>;
        check(name(group, "NCCL's order", 2, dtype_of<T>()) + ", sums on the host",
              toy_on_devices<Stage>(group, schedule),
              [&] { return toy_on_devices<typename Stage::template with<Sums>>(group, schedule); });
    }
}

} // namespace zero::test::nccl_engines
