#pragma once

#include "../backend/backend.hpp"
#include "../backend/fence.hpp"
#include "../backend/slices.hpp"
#include "../backend/update_decision.hpp"
#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/error.hpp"
#include "../core/host_memory_resource.hpp"
#include "../core/memory_resource.hpp"
#include "../core/storage_types.hpp"
#include "../ops/exact_sum.hpp"
#include "../ops/norm.hpp"
#include "../ops/tree_sum.hpp"
#include "queue.hpp"
#include "tensor.hpp"
#include "threaded_queue.hpp"
#include "update.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace ZERO_NAMESPACE::host::detail {

/// Returns whether the translation unit that contains the call was compiled to compute expressions
/// as written.
///
/// clang 14 defines no macro for -funsafe-math-optimizations and its parts -fassociative-math,
/// -freciprocal-math and -fno-signed-zeros, so this function computes expressions
/// that they change. g++ defines macros, which `ops/arithmetic.hpp` refuses.
[[gnu::always_inline]] inline bool keeps_arithmetic() noexcept {
    // Volatile numbers are not folded, and each is read once.
    float const volatile numbers[] = {1.0F, 0x1p30F, 9.0F, -0.0F};
    float const small = numbers[0];
    float const large = numbers[1];
    float const dividend = numbers[2];
    float const negative_zero = numbers[3];
    return (small + large) - large == 0.0F       // 1 if reassociated
           && dividend / 10.0F == 0x1.ccccccp-1F // times the reciprocal it is the next float
           && !__builtin_signbit(negative_zero + 0.0F);
}

} // namespace ZERO_NAMESPACE::host::detail

namespace ZERO_NAMESPACE::host {

/// @brief A table of slices that commands read. Owns the slices, at a stable address; an engine
/// creates it when it is constructed.
template <class Slice>
class SliceTable {
public:
    using Range = std::span<Slice const>; ///< consecutive slices, the argument of commands

    SliceTable() = default;

    /// @brief Takes the slices. The queue and the memory of the backend are not used, because host
    /// commands read the slices in place.
    SliceTable(Queue*, MemoryResource&, zero::detail::List<Slice> slices)
        : _slices(std::move(slices)) {}

    /// @brief Returns the slices in the order in which they were given.
    [[nodiscard]] zero::detail::List<Slice> const& slices() const noexcept { return _slices; }

    /// @brief Returns all slices, for a command.
    [[nodiscard]] Range all() const noexcept { return zero::detail::as_span(_slices); }

    /// @brief Returns `count` slices from number `first` on, for a command.
    [[nodiscard]] Range range(std::size_t first, std::size_t count) const noexcept {
        return {_slices.data() + first, count};
    }

    /// @brief Returns the bytes of the backend's memory that the table uses: none.
    [[nodiscard]] static constexpr std::size_t size_bytes() noexcept { return 0; }

private:
    zero::detail::List<Slice> _slices;
};

} // namespace ZERO_NAMESPACE::host

namespace ZERO_NAMESPACE {

/// @brief The host as a backend: queues of commands, and every operation through which the engine
/// and the transports touch data.
///
/// All functions are static, and the type is always reached through a template parameter: a test
/// derives from it and replaces one function.
struct HostBackend {
    using Queue = host::Queue*;
    using Event = host::Event;
    using OwnedQueue = host::WaitingQueue; ///< the queue that an engine creates for communication

    /// @brief The slices that `inspect`, `update` and similar operations read. Constructed as
    /// `Table(queue, memory, slices)`; `range(first, count)` is the argument of the operations.
    template <class Slice>
    using SliceTable = host::SliceTable<Slice>;

    static Queue handle(OwnedQueue& queue) noexcept { return &queue; }

    /// @brief Returns the queue that runs commands on the calling thread.
    static Queue default_compute_queue() noexcept;

    static MemoryResource& default_memory() noexcept;

    /// @brief Checks a caller-owned queue before its first use. @throws InvalidArgument for a null
    /// pointer
    static void require_queue(Queue queue);

    /// @brief Throws if this translation unit, or the compiled library, was compiled with flags
    /// that let a compiler change the value of an expression and that define no macro. Engines call
    /// it when they are constructed.
    /// @throws InvalidArgument
    [[gnu::always_inline]] static void require_arithmetic() {
        require_arithmetic(host::detail::keeps_arithmetic());
    }

    static Event record(Queue queue) { return queue->record(); }
    static void wait(Queue queue, Event const& event, Fence) { queue->wait(event); }
    static void synchronise(Event const& event) { event.synchronise(); }
    static void rethrow_failure(Queue queue) { queue->rethrow_failure(); }
    static void rethrow_failure(Event const& event) { event.rethrow_failure(); }

    /// @brief Reads one value on the host. The command that wrote it must be complete.
    template <class T>
    static T load(T const* value) {
        return *value;
    }

    template <class F>
    static void run(Queue queue, F const& functor) {
        queue->enqueue(functor);
    }

    template <class T>
    static void fill(Queue queue, T* out, std::size_t elements, T value) {
        if (elements != 0) {
            queue->enqueue([=] {
                for (std::size_t i = 0; i < elements; ++i) {
                    out[i] = value;
                }
            });
        }
    }

    static void copy_bytes(Queue queue, void* out, void const* in, std::size_t bytes);

    /// @brief Enqueues `host::convert`.
    template <StorageType To, StorageType From>
    static void convert(Queue queue, To* out, From const* in, std::size_t elements, float factor);

    /// @brief Enqueues `host::accumulate`.
    template <StorageType To, StorageType From>
    static void accumulate(Queue queue, To* sum, From const* in, std::size_t elements);

    /// @brief Enqueues `host::sum_ranks`.
    /// @param peers one pointer per rank; must stay valid until the command has run
    template <StorageType T>
    static void sum_ranks(Queue queue, T* out, T const* const* peers, int world,
                          std::size_t elements);

    /// @brief Enqueues `host::sum_ranks` with an accumulation. It makes one pass over memory fewer
    /// than `sum_ranks` followed by `convert` or `accumulate`.
    template <StorageType A, StorageType T>
    static void sum_ranks(Queue queue, A* sum, T const* const* peers, int world,
                          std::size_t elements, bool is_added);

    /// @brief Enqueues `host::sum_tree`.
    template <StorageType A, StorageType T>
    static void sum_tree(Queue queue, ops::TreeSum<A> const& sum, T const* const* peers, int world,
                         std::size_t elements);

    static void sum_integers(Queue queue, std::int64_t* out, std::int64_t const* const* peers,
                             int world, std::size_t elements);

    static void min_integers(Queue queue, std::int64_t* out, std::int64_t const* const* peers,
                             int world, std::size_t elements);

    /// @brief Enqueues the sums over the ranks of the first `sums` integers, and the minima of the
    /// next `minima`.
    static void reduce_integers(Queue queue, std::int64_t* out, std::int64_t const* const* peers,
                                int world, std::size_t sums, std::size_t minima);

    /// @brief Adds the slices to an inspection. The table must stay valid until the command has
    /// run.
    template <StorageType A>
    static void inspect(Queue queue, std::span<InspectSlice<A> const> slices,
                        ops::Inspection* result);

    /// @brief Adds each slice to its norm. The table must stay valid until the command has run.
    template <StorageType A>
    static void add_to_norms(Queue queue, std::span<NormSlice<A> const> slices, NormKind kind,
                             ops::NormSum* norms);

    /// @brief Adds the number of elements that are 0 or -0 to `count`. The table must stay valid
    /// until the command has run.
    template <StorageType A>
    static void count_zeros(Queue queue, std::span<InspectSlice<A> const> slices,
                            std::int64_t* count);

    /// @brief Runs one optimizer step over the slices unless `decision` skips it, or the group of a
    /// slice `is_left`. The tables must stay valid until the command has run.
    template <class Optimizer, class Slice, class Group>
    static void update(Queue queue, std::span<Slice const> slices, Group const* groups,
                       UpdateDecision const* decision) {
        queue->enqueue([=] {
            if (decision->skip) {
                return;
            }
            for (auto const& slice : slices) {
                Group const& group = groups[slice.group];
                if (is_left(group)) {
                    continue;
                }
                UpdateDecision of_group = *decision;
                of_group.factor = factor_of(group, *decision);
                if constexpr (Optimizer::whole_tensor) {
                    Optimizer::update_tensor(host::Tensor(slice, of_group), group.hyper);
                } else {
                    host::update<Optimizer>(slice.gradient, decided(slice.weights(), of_group),
                                            decided(slice.all_states(), of_group), slice.elements,
                                            of_group.factor, group.hyper);
                }
            }
        });
    }

    /// @brief Copies a bucket to its tensors and converts where the types differ. The table must
    /// stay valid until the command has run.
    template <StorageType T, StorageType InBucket>
    static void copy_from_bucket(Queue queue, std::span<CopySlice<T> const> slices,
                                 InBucket const* bucket);

    /// @brief Copies tensors, or slices of them, to their places in a bucket and converts where the
    /// types differ. The table must stay valid until the command has run.
    template <StorageType T, StorageType InBucket>
    static void copy_to_bucket(Queue queue, std::span<CopySlice<T> const> slices, InBucket* bucket);

    /// @brief Enqueues `host::encode` (code_blocks.hpp, which defines it) of slices of a bucket,
    /// each of which begins at a multiple of
    /// 64. The table must stay valid until the command has run.
    /// @param codes of the bucket: `C::bytes_per_block` bytes for each block of 64 elements
    template <class C, StorageType T>
    static void encode(Queue queue, std::span<CopySlice<T> const> slices, std::uint8_t* codes);

    /// @brief Enqueues `host::decode` to slices of a bucket. The table must stay valid until the
    /// command has run.
    /// @param bucket where slices without a tensor are
    template <class C, StorageType T>
    static void decode(Queue queue, std::span<CopySlice<T> const> slices, std::uint8_t const* codes,
                       T* bucket);

    /// @brief Enqueues `host::encode` of pieces of a bucket, to their places among the codes. The
    /// table must stay valid until the command has run.
    template <class C, StorageType T>
    static void encode(Queue queue, std::span<CodedSlice const> slices, T const* bucket,
                       std::uint8_t* codes);

    /// @brief The same with `ErrorFeedback<S>`: encodes gradients plus old errors, and replaces the
    /// errors.
    template <class C, class S, StorageType T, class E>
    static void encode_with_feedback(Queue queue, std::span<CodedSlice const> slices,
                                     T const* bucket, std::uint8_t* codes,
                                     CodedErrors<E> const& errors);

    /// @brief Enqueues `host::decode_sum` of pieces of an extent. The table must stay valid until
    /// the command has run.
    /// @param sums of the extent, replaced, or added to if `is_added`
    template <class C, StorageType A>
    static void decode_sum(Queue queue, std::span<CodedSlice const> slices,
                           std::uint8_t const* codes, CodedPieces pieces, A* sums, bool is_added);

private:
    static void require_arithmetic(bool is_kept_in_unit);
};
static_assert(Backend<HostBackend>);

} // namespace ZERO_NAMESPACE

#if defined(ZERO_COMPILED)
#include "detail/host_backend_instantiations.hpp"

namespace ZERO_NAMESPACE {
ZERO_HOST_INSTANTIATE_BACKEND(extern)
} // namespace ZERO_NAMESPACE
#else
#include "detail/host_backend.ipp"
#endif
