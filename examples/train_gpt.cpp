// Trains a small byte-level GPT on real text, on several ranks, under any ZeRO stage, and proves
// that the stage changes nothing but the memory. Ranks are threads of one process, or, with
// --communicator mpi, processes that mpirun or srun started. gpt/model.hpp holds the model,
// gpt/trainer.hpp the calls of the library, gpt/program.hpp the command line, gpt/processes.hpp the
// choice of the communicator.

#include "gpt/host_model.hpp"
#include "gpt/processes.hpp"
#include "gpt/program.hpp"
#include "gpt/timelines.hpp"
#include "gpt/trainer.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/comm/secondary.hpp>
#include <zero/comm/timed.hpp>
#include <zero/core/memory_resource.hpp>
#include <zero/host/inline_queue.hpp>
#include <zero/stage/wire.hpp>
#if defined(GPT_HAS_TIER)
#include <zero/stage/offload.hpp>
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// Compiled in gpt/host_model.cpp.
namespace gpt {
extern template struct HostAttention<float>;
extern template class HostDevice<float>;
extern template void load(std::span<float const>, float*) noexcept;
extern template void load(std::span<zero::bfloat16 const>, float*) noexcept;
extern template void load(std::span<zero::float16 const>, float*) noexcept;
extern template void add_to(std::span<float>, float const*) noexcept;
extern template void add_to(std::span<zero::bfloat16>, float const*) noexcept;
extern template void add_to(std::span<zero::float16>, float const*) noexcept;
} // namespace gpt

namespace {

using namespace gpt;

/// Gathers the measurements of all ranks, which may be processes.
std::vector<RankSummary> gather(HostCommunicator& communicator, RankSummary const& own) {
    static_assert(std::is_trivially_copyable_v<RankSummary>);
    std::vector<RankSummary> all(static_cast<std::size_t>(communicator.size()));
    std::vector<std::size_t> cuts;
    for (std::size_t cut = 0; cut <= all.size(); ++cut) {
        cuts.push_back(cut * sizeof(RankSummary));
    }
    zero::host::InlineQueue queue;
    communicator.all_gather(reinterpret_cast<unsigned char const*>(&own),
                            reinterpret_cast<unsigned char*>(all.data()), cuts, &queue,
                            {"the tables", 0});
    return all;
}

/// The memory of a rank, with the limit of --memory-limit. The rings of commands are not counted:
/// they hold nothing of the model, and compared with a small model they are large.
class LimitedMemory final : public zero::MemoryResource {
public:
    /// @param memory that of the communicator, which peers may read in place
    LimitedMemory(std::size_t limit, zero::MemoryResource& memory)
        : _limit(limit == 0 ? std::numeric_limits<std::size_t>::max() : limit), _memory(&memory) {}

    void* allocate(std::size_t bytes, zero::BufferKind kind) override {
        bool const is_counted = kind != zero::BufferKind::commands;
        if (is_counted && bytes > _limit - _held) {
            throw std::runtime_error("--memory-limit leaves " + std::to_string(_limit - _held)
                                     + " bytes, but " + std::to_string(bytes) + " are needed for "
                                     + name_of(kind) + "; try --offload file");
        }
        void* const memory = _memory->allocate(bytes, kind);
        _bytes[static_cast<std::size_t>(kind)] += bytes;
        _held += is_counted ? bytes : 0;
        return memory;
    }
    void deallocate(void* memory, std::size_t bytes, zero::BufferKind kind) noexcept override {
        _memory->deallocate(memory, bytes, kind);
        _bytes[static_cast<std::size_t>(kind)] -= bytes;
        _held -= kind != zero::BufferKind::commands ? bytes : 0;
    }
    [[nodiscard]] std::size_t allocated_bytes(zero::BufferKind kind) const noexcept {
        return _bytes[static_cast<std::size_t>(kind)];
    }

private:
    std::size_t _limit; ///< only the thread of the rank allocates
    zero::MemoryResource* _memory;
    std::array<std::size_t, zero::buffer_kinds> _bytes{};
    std::size_t _held = 0;
};

/// The traffic of the parts in which --shard or --secondary divides the ranks.
class CountedParts {
public:
    CountedParts(HostCommunicator& everyone, std::vector<HostCommunicator*> parts)
        : _everyone(&everyone), _parts(std::move(parts)) {}

    [[nodiscard]] int rank() const { return _everyone->rank(); }
    [[nodiscard]] int size() const { return _everyone->size(); }
    [[nodiscard]] zero::TrafficCount traffic() const {
        zero::TrafficCount all = _everyone->traffic();
        for (HostCommunicator const* part : _parts) {
            zero::TrafficCount const own = part->traffic();
            for (std::size_t kind = 0; kind < zero::collective_kinds; ++kind) {
                all.kinds[kind].calls += own.kinds[kind].calls;
                all.kinds[kind].elements += own.kinds[kind].elements;
                all.kinds[kind].bytes += own.kinds[kind].bytes;
            }
        }
        return all;
    }
    void reset_traffic() {
        _everyone->reset_traffic();
        for (HostCommunicator* const part : _parts) {
            part->reset_traffic();
        }
    }

private:
    HostCommunicator* _everyone;
    std::vector<HostCommunicator*> _parts;
};

/// Divides the ranks into groups of `size`, and calls `body(groups, counted)`.
template <class Groups, class Body>
void in_groups(HostCommunicator& everyone, zero::Timed<HostCommunicator>& timed, std::size_t size,
               Body const& body) {
    int const ranks = everyone.size();
    if (static_cast<std::size_t>(ranks) % size != 0) {
        throw std::invalid_argument("--shard must divide the number of ranks");
    }
    auto const group = static_cast<int>(size);
    int const rank = everyone.rank();
    everyone.with_part(rank / group, rank, [&](HostCommunicator& shard) {
        everyone.with_part(rank % group, rank, [&](HostCommunicator& replicas) {
            zero::Timed<HostCommunicator> timed_shard(shard, timed.timeline());
            zero::Timed<HostCommunicator> timed_replicas(replicas, timed.timeline());
            Groups groups(timed, timed_shard, timed_replicas);
            CountedParts counted(everyone, {&shard, &replicas});
            zero::run_rank(groups, [&](Groups& parts) { body(parts, counted); });
        });
    });
}

/// Lets `size` consecutive ranks share secondary copies, and calls `body(groups, counted)`.
template <class Groups, class Body>
void with_copies(HostCommunicator& everyone, zero::Timed<HostCommunicator>& timed, std::size_t size,
                 Body const& body) {
    int const rank = everyone.rank();
    if (static_cast<std::size_t>(everyone.size()) % size != 0) {
        throw std::invalid_argument("--secondary must divide the number of ranks");
    }
    everyone.with_part(rank / static_cast<int>(size), rank, [&](HostCommunicator& part) {
        zero::Timed<HostCommunicator> timed_part(part, timed.timeline());
        Groups groups(timed, timed_part);
        CountedParts counted(everyone, {&part});
        zero::run_rank(groups, [&](Groups& all) { body(all, counted); });
    });
}

/// @param process this process as a rank; null: ranks are threads
template <class Stage>
Summary train_stage(Settings const& settings, Text const& text, HostCommunicator* process) {
    Config const config = make_config(settings.layers, settings.width, settings.context);
    auto const model = parameters_of(config);
    Summary summary;
    Timelines timelines(settings, process != nullptr ? process->rank() : -1);
    std::function<void(HostCommunicator&)> const rank_body = [&](HostCommunicator& communicator) {
        zero::Timed<HostCommunicator> timed(communicator, timelines.of_rank(communicator.rank()));
        LimitedMemory memory(settings.memory_limit, communicator.shared_memory());
        auto options = engine_options<Stage>(settings);
        if constexpr (requires { options.offload.path; }) {
            options.offload.path = settings.offload_path;
            options.offload.ratio = settings.offload_ratio;
            options.offload.chunk_bytes = settings.offload_chunk_bytes;
            options.offload.allow_page_cache = settings.offload_page_cache;
        }
        options.memory = &memory;
        RankSummary own;
        zero::TraceReport trace;
        std::uint64_t hash = 0;
        auto const train_on = [&](typename Stage::Communicator& parts, auto& counted) {
            Stage engine(parts, registration<typename Stage::ParameterType>(model, settings.seed),
                         options);
            hash = train_rank<typename Stage::EngineType>(
                engine, HostDevice<float>(), counted, config, settings, text, memory, own, trace);
        };
        if constexpr (zero::GroupedCommunicator<typename Stage::Communicator>) {
            in_groups<typename Stage::Communicator>(communicator, timed, settings.shard, train_on);
        } else if constexpr (zero::SecondaryCommunicator<typename Stage::Communicator>) {
            with_copies<typename Stage::Communicator>(communicator, timed, settings.secondary,
                                                      train_on);
        } else {
            train_on(timed, communicator);
        }
        auto all = gather(communicator, own);
        if (process != nullptr || communicator.rank() == 0) {
            summary.hash = hash;
            summary.trace = std::move(trace);
            summary.ranks = std::move(all);
        }
    };
    if (process != nullptr) {
        zero::run_rank(*process, rank_body);
    } else {
        std::function<void(zero::LoopbackCommunicator&)> const thread_body =
            [&](zero::LoopbackCommunicator& loopback) {
                if (settings.inner_ranks == 1) {
                    HostCommunicator communicator(&loopback);
                    rank_body(communicator);
                } else {
                    Groups<zero::LoopbackCommunicator> groups(loopback, settings.inner_ranks);
                    rank_body(groups.communicator());
                }
            };
        zero::run_ranks(settings.world, thread_body);
    }
    timelines.write();
    summary.conclude(model);
    return summary;
}

Summary train(Settings settings, Text const& text, HostCommunicator* process) {
    settings.share_micro_batches();
    auto const train_with = [&]<class... Policies>() {
        return [&]<int N, class P, class Partitioner>() {
            return train_stage<zero::ZeroStage<N, zero::Parameters<P>, zero::SizeCappedBucketer,
                                               Partitioner, Policies...>>(settings, text, process);
        };
    };
    if (settings.offload == "host") {
        throw std::invalid_argument("--offload host is for the states of a device: cuda_train_gpt");
    }
    if (settings.delayed && settings.offload != "file") {
        throw std::invalid_argument("--delayed needs --offload file");
    }
    if (settings.wire_gradients != "plain" && settings.wire == "plain") {
        throw std::invalid_argument("--wire-gradients needs --wire int8");
    }
    if (settings.feedback != "none" && settings.wire_gradients == "plain") {
        throw std::invalid_argument("--feedback needs --wire-gradients int4");
    }
    using Flat = zero::Timed<HostCommunicator>;
    if (settings.wire != "plain") {
        if (settings.offload != "none" || settings.dtype != "bfloat16"
            || settings.micro_batches != 0 || settings.shard != 0 || settings.secondary != 0
            || settings.stage == 0) {
            throw std::invalid_argument("--wire needs --dtype bfloat16, a stage of 1 to 3, and no "
                                        "--offload, --micro-batches, --shard or --secondary");
        }
        auto const in_codes = [&]<class C>(C) {
            return with_chosen_types<zero::bfloat16>(
                settings, [&]<int N, class P, class Partitioner>() {
                    return train_with.template operator()<Flat, zero::Wire<C>>()
                        .template operator()<(N == 0 ? 1 : N), P, Partitioner>();
                });
        };
        if (settings.wire_gradients == "int4") {
            auto const in_four_bits = [&]<class F>(F) {
                return with_chosen_types<zero::bfloat16>(
                    settings, [&]<int N, class P, class Partitioner>() {
                        using Wire = zero::Wire<zero::Int8Blocks, zero::Int4Blocks, F>;
                        return train_with.template operator()<Flat, Wire>()
                            .template operator()<(N == 0 ? 1 : N), P, Partitioner>();
                    });
            };
            if (settings.wire != "int8" || settings.inner_ranks != 1) {
                throw std::invalid_argument(
                    "--wire-gradients needs --wire int8 and no --inner-ranks");
            }
            return settings.feedback == "float" ? in_four_bits(zero::ErrorFeedback<float>{})
                                                : in_four_bits(zero::NoFeedback{});
        }
        return settings.wire == "int8" ? in_codes(zero::Int8Blocks{})
                                       : in_codes(zero::Int4Blocks{});
    }
    // Groups and files for one type only: each takes the compiler a further engine.
    if (settings.shard != 0) {
        if (settings.offload != "none" || settings.dtype != "bfloat16"
            || settings.micro_batches != 0 || settings.inner_ranks != 1 || settings.stage == 0) {
            throw std::invalid_argument("--shard needs --dtype bfloat16, a stage of 1 to 3, and no "
                                        "--offload, --micro-batches or --inner-ranks");
        }
        return with_chosen_types<zero::bfloat16>(
            settings, [&]<int N, class P, class Partitioner>() {
                return train_with.template operator()<zero::Groups<Flat, zero::Hybrid>>()
                    .template operator()<(N == 0 ? 1 : N), P, Partitioner>();
            });
    }
    if (settings.secondary != 0) {
        if (settings.offload != "none" || settings.dtype != "bfloat16"
            || settings.micro_batches != 0 || settings.inner_ranks != 1 || settings.stage != 3
            || settings.shard != 0) {
            throw std::invalid_argument("--secondary needs --dtype bfloat16, stage 3, and no "
                                        "--offload, --micro-batches, --inner-ranks or --shard");
        }
        return with_chosen_types<zero::bfloat16>(
            settings, [&]<int N, class P, class Partitioner>() {
                return train_with.template operator()<zero::Groups<Flat, zero::Secondary>>()
                    .template operator()<3, P, Partitioner>();
            });
    }
    if (settings.is_in_tree()) {
        if (settings.offload != "none") {
            throw std::invalid_argument(
                "--micro-batches needs states in memory: this program was built without files for "
                "it");
        }
        return with_chosen_types<float, zero::bfloat16, zero::float16>(
            settings, train_with.template operator()<Flat, zero::TreeReduction<>>());
    }
    if (settings.offload == "none") {
        return with_chosen_types<float, zero::bfloat16, zero::float16>(
            settings, train_with.template operator()<Flat>());
    }
#if defined(GPT_HAS_TIER)
    using States = zero::To<zero::FileTier, zero::BufferKind::optimizer_state,
                            zero::BufferKind::master_weights>;
    if (settings.delayed) {
        return with_chosen_types<zero::bfloat16>(
            settings,
            train_with.template operator()<Flat, zero::Offload<States, zero::DelayedUpdate>>());
    }
    return with_chosen_types<zero::bfloat16>(settings, [&]<int N, class P, class Partitioner>() {
        using All = zero::To<zero::FileTier, zero::BufferKind::optimizer_state,
                             zero::BufferKind::master_weights, zero::BufferKind::parameters>;
        using Target = std::conditional_t<N == 3, All, States>;
        return train_with.template operator()<Flat, zero::Offload<Target>>()
            .template operator()<N, P, Partitioner>();
    });
#else
    throw std::invalid_argument("this program was built without --offload file; it needs xxHash");
#endif
}

} // namespace

int main(int argc, char** argv) {
    Processes processes;
    int const status = run_program(
        argc, argv, "train_gpt",
        "Trains a small byte-level GPT on several ranks, under any ZeRO stage.",
        [&](Settings& settings) {
            processes.join(settings);
            return true;
        },
        [&](Settings const& settings, Text const& text) {
            return train(settings, text, processes.communicator());
        });
    return processes.end(status);
}
