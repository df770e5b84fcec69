#pragma once

#include "../backend/backend.hpp"
#include "../backend/slices.hpp"
#include "../backend/update_decision.hpp"
#include "../core/buffer.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/require_cxx20.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/memory_resource.hpp"
#include "../ops/exact_sum.hpp"
#include "../ops/norm.hpp"
#include "../ops/tree_sum.hpp"
#include "allocator_memory.hpp"
#include "capture_lock.hpp"
#include "detail/kernels/code_kernels.cuh"
#include "detail/kernels/config.cuh"
#include "detail/kernels/element_kernels.cuh"
#include "detail/kernels/launch.cuh"
#include "detail/kernels/sum_kernels.cuh"
#include "detail/kernels/update_kernels.cuh"
#include "detail/runtime/check.hpp"
#include "runtime_backend.hpp"
#include "table_range.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see detail/kernels/config.cuh

namespace ZERO_NAMESPACE::cuda::ZERO_CUDA_NAMESPACE {

/// @brief A CUDA device as a backend: queues are streams, and every operation enqueues a kernel or
/// a copy on the current device of the calling thread.
///
/// Results equal those of the host backend bit for bit. Memory may have any alignment; kernels move
/// 16 bytes at a time where all memory of a slice is aligned to that. Kernels are instantiated in
/// the translation units that use them; those that depend on element types alone, in the library
/// `zero::cuda_compiled` if it is linked. Neither kernels nor the functions here are visible
/// outside a shared library.
struct Backend : RuntimeBackend {
    /// @brief Throws if the code was compiled with -ftz=true or -use_fast_math, which includes it;
    /// neither defines a macro. Waits for the device. Engines call it when they are constructed.
    /// @throws InvalidArgument, CudaError
    ZERO_CUDA_HIDDEN static void require_arithmetic(Queue queue) {
        Buffer<int> is_exact(cuda::default_memory(), 1, BufferKind::control);
        detail::launch(queue, 1, 1, detail::arithmetic_kernel<>, 0x1p-126F, is_exact.data());
        synchronise(record(queue));
        if (load(is_exact.data()) == 0) {
            zero::detail::throw_error<InvalidArgument>(
                {"zero: this code was compiled by nvcc with -ftz=true, or with -use_fast_math, "
                 "which includes it: subnormal numbers become zero; compile without these flags."});
        }
    }

    /// @brief Enqueues a command of the engine on its scalars, in one thread.
    template <class F>
    ZERO_CUDA_HIDDEN static void run(Queue queue, F const& functor) {
        detail::launch(queue, 1, 1, detail::run_kernel<F>, functor);
    }

    /// @brief Enqueues out[i] = value. @throws CudaError
    template <class T>
    ZERO_CUDA_HIDDEN static void fill(Queue queue, T* out, std::size_t elements, T value) {
        if (elements == 0) {
            return;
        }
        unsigned char bytes[sizeof(T)];
        std::memcpy(bytes, &value, sizeof(T));
        if (std::all_of(bytes, bytes + sizeof(T),
                        [&](unsigned char byte) { return byte == bytes[0]; })) {
            CaptureLock const lock(queue);
            detail::check(cudaMemsetAsync(out, bytes[0], elements * sizeof(T), queue),
                          "cudaMemsetAsync");
            return;
        }
        using Word =
            std::conditional_t<sizeof(T) == 8, std::uint64_t,
                               std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
        static_assert(sizeof(T) == 1 || sizeof(T) == sizeof(Word),
                      "zero: fill is for elements of 1, 2, 4 or 8 bytes.");
        if constexpr (sizeof(T) == sizeof(Word)) {
            detail::launch(queue, detail::chunks_of(elements), detail::block_threads,
                           detail::fill_kernel<Word>, reinterpret_cast<Word*>(out), elements,
                           __builtin_bit_cast(Word, value));
        }
    }

    /// @brief Enqueues out[i] = in[i] * factor, in float, rounded to `To`; a copy if neither value
    /// nor type changes. @throws CudaError
    template <class To, class From>
    ZERO_CUDA_HIDDEN static void convert(Queue queue, To* out, From const* in, std::size_t elements,
                                         float factor);

    /// @brief Enqueues sum[i] += in[i], in float, rounded to `To`. @throws CudaError
    template <class To, class From>
    ZERO_CUDA_HIDDEN static void accumulate(Queue queue, To* sum, From const* in,
                                            std::size_t elements);

    /// @brief Enqueues out[i] = the sum of peers[r][i] over all ranks r, in float in rank order,
    /// rounded once.
    /// @param peers `world` pointers, copied before the call returns
    /// @throws InvalidArgument for more than 256 ranks; CudaError
    template <class T>
    ZERO_CUDA_HIDDEN static void sum_ranks(Queue queue, T* out, T const* const* peers, int world,
                                           std::size_t elements);

    /// @brief Enqueues the sum of peers[r][i] over all ranks r, as a subtree of micro-batches, plus
    /// the sums that are held, rounded once. One rank without held sums converts. Instantiated
    /// where it is used, even with `zero::cuda_compiled`: only `TreeReduction` uses it.
    /// @param peers `world` pointers, copied before the call returns
    /// @throws InvalidArgument for more than 256 ranks; CudaError
    template <class A, class T>
    ZERO_CUDA_HIDDEN static void sum_tree(Queue queue, ops::TreeSum<A> const& sum,
                                          T const* const* peers, int world, std::size_t elements) {
        if (world == 1 && sum.held.count == 0) {
            convert(queue, sum.out, peers[0], elements, 1.0F);
        } else if (world <= detail::few_peers) {
            detail::launch_sum_tree<detail::few_peers>(queue, sum, peers, world, elements);
        } else {
            detail::launch_sum_tree<detail::most_peers>(queue, sum, peers, world, elements);
        }
    }

    /// @brief Enqueues out[i] = the sum of peers[r][i] over all ranks r. The pointers are copied
    /// before the call returns. @throws InvalidArgument for more than 256 ranks; CudaError
    ZERO_CUDA_HIDDEN static void sum_integers(Queue queue, std::int64_t* out,
                                              std::int64_t const* const* peers, int world,
                                              std::size_t elements) {
        combine_integers(queue, out, peers, world, elements, elements);
    }

    /// @brief Enqueues out[i] = the minimum of peers[r][i] over all ranks r. The pointers are
    /// copied before the call returns. @throws InvalidArgument for more than 256 ranks; CudaError
    ZERO_CUDA_HIDDEN static void min_integers(Queue queue, std::int64_t* out,
                                              std::int64_t const* const* peers, int world,
                                              std::size_t elements) {
        combine_integers(queue, out, peers, world, elements, 0);
    }

    /// @brief Enqueues the sums of the first `sums` integers over all ranks and the minima of the
    /// next `minima`. The pointers are copied before the call returns.
    /// @throws InvalidArgument for more than 256 ranks; CudaError
    ZERO_CUDA_HIDDEN static void reduce_integers(Queue queue, std::int64_t* out,
                                                 std::int64_t const* const* peers, int world,
                                                 std::size_t sums, std::size_t minima) {
        combine_integers(queue, out, peers, world, sums + minima, sums);
    }

    /// @brief Enqueues the addition of the slices to an inspection. @throws CudaError
    template <class A>
    ZERO_CUDA_HIDDEN static void inspect(Queue queue, TableRange<InspectSlice<A>> const& table,
                                         ops::Inspection* result);

    /// @brief Enqueues the addition of each slice to its norm. @throws CudaError
    template <class A>
    ZERO_CUDA_HIDDEN static void add_to_norms(Queue queue, TableRange<NormSlice<A>> const& table,
                                              NormKind kind, ops::NormSum* norms);

    /// @brief Enqueues the addition of the number of zeros to `count`. @throws CudaError
    template <class A>
    ZERO_CUDA_HIDDEN static void count_zeros(Queue queue, TableRange<InspectSlice<A>> const& table,
                                             std::int64_t* count);

    /// @brief Enqueues one optimizer step over the slices; the kernels do nothing if the decision
    /// is to skip. An optimizer of whole parameters takes one kernel for each call of
    /// `update_tensor`, with the slices that need no scratch memory together.
    /// @throws CudaError
    template <class Optimizer, class Slice, class Group>
    ZERO_CUDA_HIDDEN static void update(Queue queue, TableRange<Slice> const& table,
                                        Group const* groups, UpdateDecision const* decision) {
        if constexpr (Optimizer::whole_tensor) {
            static_assert(
                requires { sizeof(detail::TensorUpdates<Optimizer>); },
                "zero: kernels of whole parameters include CUB, which units that link "
                "zero::cuda_compiled do not; #include "
                "<zero/cuda/detail/kernels/tensor_kernels.cuh> in the unit of the engine.");
            detail::TensorUpdates<Optimizer>::enqueue(queue, table, groups, decision);
        } else {
            detail::launch(queue, table.count, detail::block_threads,
                           detail::update_kernel<Optimizer, Slice, Group>, table, groups, decision);
        }
    }

    /// @brief Floats before the scratch memory of an optimizer of whole parameters, for the sums of
    /// a parameter's norms.
    template <class Optimizer>
    [[nodiscard]] static std::size_t norm_floats(std::size_t elements, std::size_t rows) noexcept {
        return detail::TensorUpdates<Optimizer>::norm_floats(elements, rows);
    }

    /// @brief Enqueues one kernel that copies a bucket to its tensors, and converts where the types
    /// differ.
    /// @throws CudaError
    template <class T, class InBucket>
    ZERO_CUDA_HIDDEN static void
    copy_from_bucket(Queue queue, TableRange<CopySlice<T>> const& table, InBucket const* bucket);

    /// @brief Enqueues one kernel that copies tensors to their bucket, and converts where the types
    /// differ.
    /// @throws CudaError
    template <class T, class InBucket>
    ZERO_CUDA_HIDDEN static void copy_to_bucket(Queue queue, TableRange<CopySlice<T>> const& table,
                                                InBucket* bucket);

    /// @brief Enqueues one kernel that encodes slices of a bucket, as `HostBackend::encode`.
    /// Instantiated where it is used, even with `zero::cuda_compiled`.
    /// @param codes at an even address
    /// @throws CudaError
    template <class C, class T>
    ZERO_CUDA_HIDDEN static void encode(Queue queue, TableRange<CopySlice<T>> const& table,
                                        std::uint8_t* codes) {
        detail::launch(queue, table.count, detail::block_threads,
                       detail::encode_kernel<C, CopySlice<T>, T>, table, nullptr, codes);
    }

    /// @brief Enqueues one kernel that encodes pieces of a bucket, as `HostBackend::encode`.
    /// @param codes at an even address
    /// @throws CudaError
    template <class C, class T>
    ZERO_CUDA_HIDDEN static void encode(Queue queue, TableRange<CodedSlice> const& table,
                                        T const* bucket, std::uint8_t* codes) {
        detail::launch(queue, table.count, detail::block_threads,
                       detail::encode_kernel<C, CodedSlice, T>, table, bucket, codes);
    }

    /// @brief The same with errors, as `HostBackend::encode_with_feedback`.
    /// @param codes at an even address, as errors in codes are
    /// @throws CudaError
    template <class C, class S, class T, class E>
    ZERO_CUDA_HIDDEN static void
    encode_with_feedback(Queue queue, TableRange<CodedSlice> const& table, T const* bucket,
                         std::uint8_t* codes, CodedErrors<E> const& errors) {
        detail::launch(queue, table.count, detail::block_threads,
                       detail::feedback_kernel<C, S, T, E>, table, bucket, codes, errors);
    }

    /// @brief Enqueues one kernel that decodes pieces of all ranks and adds them, as
    /// `HostBackend::decode_sum`.
    /// @throws CudaError
    template <class C, class A>
    ZERO_CUDA_HIDDEN static void decode_sum(Queue queue, TableRange<CodedSlice> const& table,
                                            std::uint8_t const* codes, CodedPieces pieces, A* sums,
                                            bool is_added) {
        detail::launch(queue, table.count, detail::block_threads, detail::decode_sum_kernel<C, A>,
                       table, codes, pieces, sums, is_added);
    }

    /// @brief Enqueues one kernel that decodes to slices of a bucket, as `HostBackend::decode`.
    /// @throws CudaError
    template <class C, class T>
    ZERO_CUDA_HIDDEN static void decode(Queue queue, TableRange<CopySlice<T>> const& table,
                                        std::uint8_t const* codes, T* bucket) {
        detail::launch(queue, table.count, detail::block_threads, detail::decode_kernel<C, T>,
                       table, codes, bucket);
    }

private:
    template <class Integer>
    ZERO_CUDA_HIDDEN static void combine_integers(Queue queue, Integer* out,
                                                  Integer const* const* peers, int world,
                                                  std::size_t elements, std::size_t sums);
};
static_assert(zero::Backend<Backend>);

} // namespace ZERO_NAMESPACE::cuda::ZERO_CUDA_NAMESPACE

#pragma nv_diagnostic pop

// The operations whose kernels depend on element types alone. They include CUB.
#if !defined(ZERO_CUDA_COMPILED)
#include "detail/kernels/element_operations.tpp"
#include "detail/kernels/tensor_kernels.cuh"
#endif
