#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../../ops/tree_sum.hpp"
#include "../collective_tag.hpp"
#include "../communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

/// @brief Throws an error that the transport of the communicator detected after its calls returned.
/// No-op for transports without `rethrow_failure`.
template <class Communicator>
void rethrow_failure_of(Communicator& communicator) {
    if constexpr (requires { communicator.rethrow_failure(); }) {
        communicator.rethrow_failure();
    }
}

/// @brief Waits on the host for a queue whose commands use results of this communicator's
/// collectives, and checks that the results are valid.
///
/// The wait alone proves nothing: it also ends when a collective is aborted, and then its result is
/// undefined.
/// @throws the exception of a command; CommunicatorError
template <class Communicator>
void wait_for_collectives(Communicator& communicator, typename Communicator::Backend::Queue queue) {
    using Backend = typename Communicator::Backend;
    Backend::synchronise(Backend::record(queue));
    Backend::rethrow_failure(queue);
    rethrow_failure_of(communicator);
}

/// @brief Waits until the collectives that were called so far have run, and checks that none
/// failed. Transports that run them in the order of the calls, whatever their queues, do not wait.
///
/// A peer that has left since does not count as a failure, if the transport has `synchronise`.
template <class Communicator>
void synchronise_collectives(Communicator& communicator) {
    if constexpr (requires { communicator.synchronise(); }) {
        communicator.synchronise();
    } else {
        rethrow_failure_of(communicator);
    }
}

/// @brief Returns whether ranks are threads of one process with a device each; false for transports
/// that do not say so.
template <class Communicator>
[[nodiscard]] bool shares_process(Communicator const& communicator) noexcept {
    if constexpr (requires { communicator.shares_process(); }) {
        return communicator.shares_process();
    } else {
        return false;
    }
}

/// @brief Returns the number of ranks that are threads of this process; 0 for transports that do
/// not say so.
template <class Communicator>
[[nodiscard]] std::size_t ranks_in_process(Communicator const& communicator) noexcept {
    if constexpr (requires { communicator.ranks_in_process(); }) {
        return communicator.ranks_in_process();
    } else {
        return 0;
    }
}

/// @brief Returns whether a reduce-scatter of `T` into `A` reads pieces where they lie. A
/// communicator that has the operation may still say that it cannot.
template <class T, class A, class Communicator>
[[nodiscard]] bool reads_pieces(Communicator const& communicator) noexcept {
    if constexpr (!ReduceScattersPieces<Communicator, T, A>) {
        return false;
    } else if constexpr (requires { communicator.template reads_pieces<T, A>(); }) {
        return communicator.template reads_pieces<T, A>();
    } else {
        return true;
    }
}

/// @brief Returns the hash of the communicator's options that must be equal on all ranks; 0 without
/// such options.
template <class Communicator>
[[nodiscard]] std::uint64_t options_hash_of(Communicator const& communicator) noexcept {
    if constexpr (requires { communicator.options_hash(); }) {
        return communicator.options_hash();
    } else {
        return 0;
    }
}

/// @brief Returns the bytes of scratch memory of a communicator; 0 if it has none.
template <class Communicator>
[[nodiscard]] std::size_t scratch_bytes_of(Communicator const& communicator,
                                           std::size_t largest_bucket_bytes) noexcept {
    if constexpr (requires { communicator.scratch_bytes(largest_bucket_bytes); }) {
        return communicator.scratch_bytes(largest_bucket_bytes);
    } else {
        return 0;
    }
}

/// @brief Returns the resource of buffers: the given one, or that whose memory the peers read in
/// place, or the backend's.
template <class Communicator>
[[nodiscard]] MemoryResource& memory_for(Communicator& communicator, MemoryResource* given) {
    if (given != nullptr) {
        return *given;
    }
    if constexpr (requires { communicator.shared_memory(); }) {
        return communicator.shared_memory();
    } else {
        return Communicator::Backend::default_memory();
    }
}

/// @brief Returns why the options of a communicator forbid sums in a tree, and the remedy; empty if
/// they allow them.
template <class Communicator>
[[nodiscard]] std::string_view reason_against_tree(Communicator const& communicator) noexcept {
    if constexpr (requires { communicator.reason_against_tree(); }) {
        return communicator.reason_against_tree();
    } else {
        return {};
    }
}

/// @brief Returns the position of a rank among the micro-batches of a micro-step: the rank, unless
/// the communicator says otherwise.
template <class Communicator>
[[nodiscard]] std::size_t position_of(Communicator const& communicator) noexcept {
    if constexpr (requires { communicator.position(); }) {
        return static_cast<std::size_t>(communicator.position());
    } else {
        return static_cast<std::size_t>(communicator.rank());
    }
}

/// @brief Returns a number of consecutive positions that a communicator adds first although they
/// are no node of the tree; 0: there is none.
template <class Communicator>
[[nodiscard]] std::size_t inadmissible_ranks_of(Communicator const& communicator,
                                                ops::MicroBatchTree const& tree) noexcept {
    if constexpr (requires { communicator.inadmissible_ranks(tree); }) {
        return communicator.inadmissible_ranks(tree);
    } else {
        return 0;
    }
}

/// @brief Sums integers over the ranks, and minimises others: as one collective, if the
/// communicator sums and minimises together. `StepControl` decides by it.
/// @param minima follow the sums; at least one
template <class Communicator, class Queue>
void reduce_integers(Communicator& communicator, Queue queue, std::int64_t* values,
                     std::size_t sums, std::int64_t* minima, std::size_t minimum_count,
                     CollectiveTag const& tag) {
    if (sums != 0) {
        if constexpr (ReducesIntegersTogether<Communicator>) {
            communicator.all_reduce_integers(values, sums, minimum_count, queue, tag);
            return;
        } else {
            communicator.all_reduce_integers(values, sums, IntegerReduction::sum, queue,
                                             CollectiveTag{"gradient norm", 0});
        }
    }
    communicator.all_reduce_integers(minima, minimum_count, IntegerReduction::min, queue, tag);
}

} // namespace ZERO_NAMESPACE::detail
