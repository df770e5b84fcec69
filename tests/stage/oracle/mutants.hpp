#pragma once

// Deliberate bugs, injected through the library's own extension points: a backend that replaces one
// operation, and a communicator that drops one call. One type contains all of them, and the active
// one is chosen at run time.

#include "driver.hpp"

#include <zero/backend/fence.hpp>
#include <zero/host/delaying_queue.hpp>
#include <zero/host/host_backend.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace zero::test::oracle {

enum class Mutation {
    none,
    ranks_reversed,            ///< sums over ranks start with the last rank
    sum_rounded_early,         ///< partial sums over ranks are rounded to bfloat16
    added_in_bfloat16,         ///< sums over micro-steps are rounded to bfloat16
    padding_inspected,         ///< the norm reads on to the next multiple of 64 elements
    norm_off_by_an_ulp,        ///< the reported norm alone is wrong
    coefficient_off_by_an_ulp, ///< the reported clip coefficient alone is wrong
    last_bucket_dropped,       ///< the last bucket is not reduced
    state_not_moved,           ///< after a rebuild each rank keeps its old optimizer states
    fence_removed
};

struct Mutant {
    Mutation mutation = Mutation::none;
    Fence fence{};
};

/// The bug of the running group. It becomes active when every rank has its engine.
inline Mutant chosen_mutant;                      // NOLINT: written before ranks start
inline std::atomic<bool> is_mutant_active{false}; // NOLINT

inline bool is_active(Mutation mutation) {
    return is_mutant_active.load(std::memory_order_acquire) && chosen_mutant.mutation == mutation;
}

/// Memory that stays readable until `recycle`. Without a fence, a rank may read memory that a peer
/// has already freed.
class KeptMemory final : public MemoryResource {
public:
    KeptMemory() = default;
    KeptMemory(KeptMemory const&) = delete;
    KeptMemory& operator=(KeptMemory const&) = delete;
    ~KeptMemory() override { recycle(); }

    void* allocate(std::size_t bytes, BufferKind) override {
        return ::operator new(bytes, std::align_val_t{128});
    }

    void deallocate(void* memory, std::size_t, BufferKind) noexcept override {
        std::lock_guard const lock(_mutex);
        _kept.push_back(memory);
    }

    void recycle() noexcept {
        std::lock_guard const lock(_mutex);
        for (void* const memory : _kept) {
            ::operator delete(memory, std::align_val_t{128});
        }
        _kept.clear();
    }

private:
    std::mutex _mutex;
    std::vector<void*> _kept;
};

/// The longest pause of queues that engines own, in microseconds.
inline std::atomic<unsigned> longest_delay_of_engines = 0; // NOLINT

struct MutantBackend : HostBackend {
    struct OwnedQueue {
        inline static std::atomic<std::uint64_t> seed = 0;
        host::DelayingQueue queue{++seed, longest_delay_of_engines,
                                  host::ThreadedQueue::default_capacity, host::WhenFull::wait};
    };

    static Queue handle(OwnedQueue& owned) noexcept { return &owned.queue; }

    static KeptMemory& default_memory() noexcept {
        static KeptMemory memory;
        return memory;
    }

    static void wait(Queue queue, Event const& event, Fence fence) {
        if (!is_active(Mutation::fence_removed) || chosen_mutant.fence != fence) {
            HostBackend::wait(queue, event, fence);
        }
    }

    template <class F>
    static void run(Queue queue, F const& functor) {
        HostBackend::run(queue, functor);
        if constexpr (requires {
                          functor.state->reports->of(functor.serial);
                          // This functor decides on the step.
                      }) {
            if (is_active(Mutation::norm_off_by_an_ulp)
                || is_active(Mutation::coefficient_off_by_an_ulp)) {
                bool const is_norm = is_active(Mutation::norm_off_by_an_ulp);
                queue->enqueue([reports = functor.state->reports, serial = functor.serial,
                                is_norm] {
                    StepFigures& report = reports->of(serial);
                    report.gradient_norm =
                        is_norm ? std::nextafter(report.gradient_norm, 0.0) : report.gradient_norm;
                    report.clip_coefficient = is_norm
                                                  ? report.clip_coefficient
                                                  : std::nextafter(report.clip_coefficient, 0.0F);
                });
            }
        }
    }

    template <class T>
    static void sum_ranks(Queue queue, T* out, T const* const* peers, int world,
                          std::size_t elements) {
        if (is_active(Mutation::ranks_reversed) || is_active(Mutation::sum_rounded_early)) {
            bool const reverses = is_active(Mutation::ranks_reversed);
            queue->enqueue([=] {
                for (std::size_t i = 0; i < elements; ++i) {
                    float sum = to_float(peers[reverses ? world - 1 : 0][i]);
                    for (int rank = 1; rank < world; ++rank) {
                        sum += to_float(peers[reverses ? world - 1 - rank : rank][i]);
                        sum = reverses ? sum : to_float(from_float<bfloat16>(sum));
                    }
                    out[i] = from_float<T>(sum);
                }
            });
        } else {
            HostBackend::sum_ranks(queue, out, peers, world, elements);
        }
    }

    template <class To, class From>
    static void accumulate(Queue queue, To* sum, From const* in, std::size_t elements) {
        if (is_active(Mutation::added_in_bfloat16)) {
            queue->enqueue([=] {
                for (std::size_t i = 0; i < elements; ++i) {
                    sum[i] = from_float<To>(
                        to_float(from_float<bfloat16>(to_float(sum[i]) + to_float(in[i]))));
                }
            });
        } else {
            HostBackend::accumulate(queue, sum, in, elements);
        }
    }

    template <class A, class Inspection>
    static void inspect(Queue queue, std::span<InspectSlice<A> const> slices, Inspection* result) {
        if (is_active(Mutation::padding_inspected)) {
            queue->enqueue([=] {
                for (auto const& slice : slices) {
                    host::inspect(slice.values, (slice.elements + 63) / 64 * 64, slice.first_index,
                                  *result);
                }
            });
        } else {
            HostBackend::inspect(queue, slices, result);
        }
    }
};

/// Forwards every call to a loopback communicator, except under `last_bucket_dropped` and
/// `state_not_moved`.
class MutantCommunicator {
public:
    using policy_category = CommunicatorCategory;
    using Backend = MutantBackend;
    using Queue = MutantBackend::Queue;
    using Inner = Loopback<MutantBackend>;

    explicit MutantCommunicator(Inner& inner) : _inner(&inner) {}
    MutantCommunicator(MutantCommunicator const&) = delete;
    MutantCommunicator& operator=(MutantCommunicator const&) = delete;

    MutantCommunicator split(int color, int key) {
        return MutantCommunicator(std::make_unique<Inner>(_inner->split(color, key)));
    }

    /// Sets the number of buckets, waits until every rank has constructed its engine, then
    /// activates the mutation.
    void set_buckets(std::size_t buckets) {
        _buckets = buckets;
        std::int64_t arrived = 1;
        host::InlineQueue queue;
        _inner->all_reduce_integers(&arrived, 1, IntegerReduction::sum, &queue,
                                    CollectiveTag{"start", 0});
        is_mutant_active = true;
    }

    [[nodiscard]] int rank() const noexcept { return _inner->rank(); }
    [[nodiscard]] int size() const noexcept { return _inner->size(); }

    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag = {}) {
        if (is_dropped(tag)) {
            auto const own = static_cast<std::size_t>(rank());
            drop(receive, cuts[own + 1] - cuts[own], queue);
        } else {
            _inner->reduce_scatter(send, receive, cuts, queue, tag);
        }
    }

    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        if (is_active(Mutation::state_not_moved)
            && std::string_view(tag.what) == "state of parameter") {
            auto const own = static_cast<std::size_t>(rank()); // in place
            drop(receive, cuts[own], queue);
            drop(receive + cuts[own + 1], cuts.back() - cuts[own + 1], queue);
        } else {
            _inner->all_gather(send, receive, cuts, queue, tag);
        }
    }

    template <class T>
    void all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        if (is_dropped(tag)) {
            drop(receive, cuts.back(), queue);
        } else {
            _inner->all_reduce(send, receive, cuts, queue, tag);
        }
    }

    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag tag = {}) {
        _inner->broadcast(buffer, elements, root, queue, tag);
    }

    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction,
                             Queue queue, CollectiveTag tag = {}) {
        _inner->all_reduce_integers(values, elements, reduction, queue, tag);
    }

    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        _inner->abort(cause, is_provisional);
    }

private:
    explicit MutantCommunicator(std::unique_ptr<Inner> part)
        : _part(std::move(part)), _inner(_part.get()) {}

    [[nodiscard]] bool is_dropped(CollectiveTag tag) const {
        return is_active(Mutation::last_bucket_dropped)
               && std::string_view(tag.what) == "gradients of bucket" && tag.index + 1 == _buckets;
    }

    /// Writes zeros instead of what a collective would have delivered. Memory that is left as it
    /// is may come from the run before, which had the right values.
    template <class T>
    static void drop(T* receive, std::size_t elements, Queue queue) {
        queue->enqueue([=] { std::fill_n(receive, elements, T{}); });
    }

    std::unique_ptr<Inner> _part; ///< what a split owns
    Inner* _inner;
    std::size_t _buckets = 0;
};

/// Runs a configuration in one stage with one bug, and returns the number of differences that the
/// oracle finds.
template <int N>
std::size_t count_differences(Configuration const& c, History const& history, Mutant const& mutant,
                              double learning_rate_error = 1.0) {
    chosen_mutant = mutant;
    is_mutant_active = false;
    longest_delay_of_engines = c.longest_delay;
    Failures failures;
    run_stage<stage_t<N, mutant_row, MutantCommunicator>>(
        {&c, &history, N, &failures, learning_rate_error});
    is_mutant_active = false;
    MutantBackend::default_memory().recycle();
    if (failures.count() != 0 && mutant.mutation == Mutation::none && learning_rate_error == 1.0) {
        UNSCOPED_INFO(describe(c) << "\nstage " << N << ": " << failures.text());
    }
    return failures.count();
}

inline std::size_t count_differences(int stage, Configuration const& c, Mutant const& mutant = {},
                                     double learning_rate_error = 1.0) {
    History const history = compute_history(c);
    switch (stage) {
    case 0: return count_differences<0>(c, history, mutant, learning_rate_error);
    case 1: return count_differences<1>(c, history, mutant, learning_rate_error);
    case 2: return count_differences<2>(c, history, mutant, learning_rate_error);
    default: return count_differences<3>(c, history, mutant, learning_rate_error);
    }
}

/// Four units of two parameters each, on three ranks. Every bucket has padding, and no step is
/// followed by a wait.
inline Configuration make_mutant_configuration(std::size_t index) {
    Configuration c;
    c.seed = 7;
    c.index = index;
    c.row = mutant_row;
    c.world = 3;
    c.cap_elements = 1;
    c.units = 4;
    for (std::size_t unit = 0; unit < c.units; ++unit) {
        c.shapes.push_back({200 + 7 * unit, {unit}, 0, true, 0});
        c.shapes.push_back({65 + unit, {unit}, 0, true, 0});
    }
    c.schedule = Schedule::every_micro_step;
    c.steps = 0;
    c.free_steps = 6;
    c.micro_steps = 2;
    c.compute = Compute::threaded;
    c.communication = Communication::threaded;
    c.prefetches = false;
    c.longest_delay = 1500;
    c.scaler.initial = 64.0F;
    c.scaler.interval = 1;
    return c;
}

} // namespace zero::test::oracle
