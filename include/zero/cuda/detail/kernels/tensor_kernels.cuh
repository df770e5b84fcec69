#pragma once

#include "../../../backend/slices.hpp"
#include "../../../backend/update_decision.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/host_device.hpp"
#include "../../../ops/arithmetic.hpp"
#include "../../../ops/detail/newton_schulz.hpp"
#include "../../../ops/exact_sum.hpp"
#include "../../../ops/norm.hpp"
#include "../../capture_lock.hpp"
#include "../../table_range.hpp"
#include "../runtime/check.hpp"
#include "chunk.hpp"
#include "config.cuh"
#include "inspect_kernels.cuh"
#include "launch.cuh"
#include "master_weight_access.cuh"
#include "optimizer_state_access.cuh"
#include "pack.cuh"
#include "pack_sum.cuh"
#include "update_kernels.cuh"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <tuple>
#include <type_traits>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see config.cuh

/// Optimizers of whole parameters on a device. Each call of `update_tensor` on its tensor is one
/// launch: the host runs `update_tensor` and enqueues a kernel for each call, and that kernel runs
/// `update_tensor` as well, but makes only this one call. The end of a launch is where all of its
/// blocks meet. So one definition of an optimizer serves hosts and devices, and a norm that a later
/// call depends on never leaves the device.
namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE {

/// @brief One block's share of a matrix product: a square of the result. The order of additions is
/// that of `MatrixProduct`.
struct ProductTile {
    static constexpr unsigned side = 64;  ///< rows and columns
    static constexpr unsigned depth = 16; ///< terms that are in shared memory at a time
    static constexpr unsigned own = 4;    ///< rows and columns of a thread
    static_assert(side / own * (side / own) == block_threads);

    /// @brief Both operands by term. The rest of a row keeps threads that write a column apart.
    struct Shared {
        alignas(16) float left[depth][side + 4];
        alignas(16) float right[depth][side + 4];
    };

    static ZERO_HOST_DEVICE constexpr std::size_t along(std::size_t length) {
        return (length + side - 1) / side;
    }

    /// @brief Returns the number of blocks.
    static constexpr std::size_t count(zero::detail::MatrixProduct const& product) {
        return along(product.rows) * along(product.columns); // 0: `launch` does nothing
    }

    /// All threads of the block call it.
    __device__ static void multiply(zero::detail::MatrixProduct const& product, std::size_t tile,
                                    Shared& shared) {
        std::size_t const top = tile / along(product.columns) * side;
        std::size_t const first = tile % along(product.columns) * side;
        if (product.is_symmetric && top < first) {
            return; // as every element above the diagonal, written with the one below it
        }
        unsigned const row = threadIdx.x / (side / own) * own;
        unsigned const column = threadIdx.x % (side / own) * own;
        float sums[own][own] = {};
        for (std::size_t k = 0; k < product.depth; k += depth) {
            load_terms<true>(product.left, product.rows, product.depth, top, k, shared.left);
            if (product.is_right_transposed) {
                load_terms<true>(product.right, product.columns, product.depth, first, k,
                                 shared.right);
            } else {
                load_terms<false>(product.right, product.depth, product.columns, k, first,
                                  shared.right);
            }
            __syncthreads();
            if (product.depth - k >= depth) {
#pragma unroll
                for (unsigned term = 0; term < depth; ++term) {
                    add(shared.left[term] + row, shared.right[term] + column, sums);
                }
            } else { // terms of zeros would turn -0 into 0
                for (unsigned term = 0; term < product.depth - k; ++term) {
                    add(shared.left[term] + row, shared.right[term] + column, sums);
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (unsigned i = 0; i < own; ++i) {
#pragma unroll
            for (unsigned j = 0; j < own; ++j) {
                write(product, top + row + i, first + column + j, sums[i][j]);
            }
        }
    }

private:
    struct alignas(16) Four {
        float values[own];
    };

    __device__ static void add(float const* left, float const* right, float (&sums)[own][own]) {
        Four const a = *reinterpret_cast<Four const*>(left);
        Four const b = *reinterpret_cast<Four const*>(right);
#pragma unroll
        for (unsigned i = 0; i < own; ++i) {
#pragma unroll
            for (unsigned j = 0; j < own; ++j) {
                sums[i][j] = ops::fma(a.values[i], b.values[j], sums[i][j]);
            }
        }
    }

    /// Loads a part of a matrix by term, with zeros outside: `depth` rows and `side` columns, or if
    /// `is_transposed` `side` rows and `depth` columns. Each thread loads four neighbours of a row.
    template <bool is_transposed>
    __device__ static void load_terms(float const* matrix, std::size_t rows, std::size_t columns,
                                      std::size_t top, std::size_t first,
                                      float (&to)[depth][side + 4]) {
        constexpr unsigned of_row = (is_transposed ? depth : side) / own;
        unsigned const row = threadIdx.x / of_row;
        unsigned const column = threadIdx.x % of_row * own;
        float const* const from = global(matrix + (top + row) * columns + first + column);
#pragma unroll
        for (unsigned i = 0; i < own; ++i) {
            float& term = is_transposed ? to[column + i][row] : to[row][column + i];
            term = top + row < rows && first + column + i < columns ? from[i] : 0.0F;
        }
    }

    __device__ static void write(zero::detail::MatrixProduct const& product, std::size_t row,
                                 std::size_t column, float sum) {
        if (row >= product.rows || column >= product.columns
            || (product.is_symmetric && column > row)) {
            return;
        }
        std::size_t const at = row * product.columns + column;
        float const value =
            product.addend == nullptr
                ? sum
                : ops::fma(product.scale, sum,
                           ops::mul(product.addend_scale, *global(product.addend + at)));
        *global(product.out + at) = value;
        if (product.is_symmetric && column != row) {
            *global(product.out + column * product.columns + row) = value;
        }
    }
};

/// @brief Weights that are read, while what the functor computes is written elsewhere.
template <class Weights>
struct RedirectedWeights {
    static constexpr bool is_all_packs = Weights::is_all_packs;

    Weights from;
    float* to;

    __device__ bool is_aligned() const { return from.is_aligned() && are_aligned(to); }

    template <bool whole>
    __device__ void load_weights(std::size_t begin, std::size_t count,
                                 float (&weights)[pack_elements]) const {
        from.template load_weights<whole>(begin, count, weights);
    }

    template <bool whole>
    __device__ void store_weights(std::size_t begin, std::size_t count,
                                  float const (&weights)[pack_elements]) const {
        store<whole>(to + begin, count, weights);
    }
};

/// @brief Weights that are read, while the squares of what the functor computes are added.
template <class Weights>
struct SummedWeights {
    static constexpr bool is_all_packs = Weights::is_all_packs;

    Weights from;
    PackSum<NormKind::l2>* sum;

    __device__ bool is_aligned() const { return from.is_aligned(); }

    template <bool whole>
    __device__ void load_weights(std::size_t begin, std::size_t count,
                                 float (&weights)[pack_elements]) const {
        from.template load_weights<whole>(begin, count, weights);
    }

    template <bool whole>
    __device__ void store_weights(std::size_t, std::size_t count,
                                  float const (&weights)[pack_elements]) const {
        float own[pack_elements];
#pragma unroll
        for (std::size_t i = 0; i < pack_elements; ++i) {
            own[i] = whole || i < count ? weights[i] : 0.0F;
        }
        sum->template add<stride<whole>>(own, 0);
    }
};

/// @brief Scales one pack.
struct ScalePack {
    float* values;
    float factor;

    template <bool whole>
    __device__ void operator()(std::size_t index, std::size_t count) const {
        float x[pack_elements];
        load<whole>(values + index, count, x);
#pragma unroll
        for (float& value : x) {
            value = ops::mul(value, factor);
        }
        store<whole>(values + index, count, x);
    }
};

/// @brief The call that a launch makes.
struct TensorCall {
    unsigned number; ///< among the calls of `update_tensor`, from 0
    unsigned norms;  ///< calls of `norm` of one parameter
};

/// @brief Shared memory of a block, whichever call it makes.
union TensorShared {
    typename PackSum<NormKind::l2>::Shared sum;
    ProductTile::Shared product;
    double norm;
};

/// @brief One whole parameter in a kernel, as a whole-tensor optimizer sees it: `TensorArchetype`
/// documents the functions. All threads of a block make the same calls.
///
/// The scratch memory begins with the sums of the norms: `TensorCall::norms` for each slice of the
/// launch.
template <class A, class Weights, class Pointers>
class DeviceTensor {
public:
    using Slice = UpdateSlice<A, Weights, Pointers>;

    /// @param index of the slice in the launch
    /// @param part of the work of the call: a chunk of elements, or a tile of a product
    __device__ DeviceTensor(Slice const& slice, UpdateDecision const& decision, float factor,
                            TensorCall call, std::size_t index, std::size_t part,
                            TensorShared& shared)
        : _slice(&slice), _decision(&decision), _shared(&shared), _part(part), _call(call),
          _factor(factor),
          _sums(reinterpret_cast<ops::Inspection*>(slice.scratch) + index * call.norms) {}

    [[nodiscard]] __device__ std::size_t elements() const noexcept { return _slice->elements; }
    [[nodiscard]] __device__ std::size_t rows() const noexcept { return _slice->rows; }
    [[nodiscard]] __device__ std::size_t columns() const noexcept {
        return rows() == 0 ? elements() : elements() / rows();
    }
    [[nodiscard]] __device__ float* scratch() const noexcept {
        return reinterpret_cast<float*>(_sums + _call.norms); // a launch with scratch has one slice
    }

    template <class Functor>
    __device__ void update(typename Functor::Hyper const& hyper) const noexcept {
        if (is_due()) {
            run<Functor>(_slice->gradient, weights(), _factor, hyper);
        }
    }

    template <class Functor>
    __device__ void update(float const* values,
                           typename Functor::Hyper const& hyper) const noexcept {
        if (is_due()) {
            run<Functor>(values, weights(), 1.0F, hyper);
        }
    }

    template <class Functor>
    __device__ void write(float* to, typename Functor::Hyper const& hyper) const noexcept {
        if (is_due()) {
            auto const from = weights();
            run<Functor>(_slice->gradient,
                         RedirectedWeights<std::remove_const_t<decltype(from)>>{from, to}, _factor,
                         hyper);
        }
    }

    template <class Functor>
    [[nodiscard]] __device__ double norm(typename Functor::Hyper const& hyper) const noexcept {
        return norm_by([&](PackSum<NormKind::l2>& sum) {
            auto const from = weights();
            run<Functor>(_slice->gradient,
                         SummedWeights<std::remove_const_t<decltype(from)>>{from, &sum}, _factor,
                         hyper);
        });
    }

    [[nodiscard]] __device__ double norm(float const* values, std::size_t n) const noexcept {
        return norm_by([&](PackSum<NormKind::l2>& sum) {
            float const* const from = values + begin();
            for_packs<false>(elements_of_chunk(begin(), n), are_aligned(from),
                             SumOfPack<PackSum<NormKind::l2>, float>{from, 0, &sum});
        });
    }

    __device__ void scale(float* values, std::size_t n, float factor) const noexcept {
        if (is_due()) {
            float* const from = values + begin();
            for_packs<false>(elements_of_chunk(begin(), n), are_aligned(from),
                             ScalePack{from, factor});
        }
    }

    __device__ void transpose(float* out, float const* in, std::size_t rows,
                              std::size_t columns) const noexcept {
        if (is_due()) {
            std::size_t const end = begin() + elements_of_chunk(begin(), rows * columns);
            for (std::size_t at = begin() + threadIdx.x; at < end; at += block_threads) {
                *global(out + at) = *global(in + at % rows * columns + at / rows);
            }
        }
    }

    __device__ void multiply(zero::detail::MatrixProduct const& product) const noexcept {
        if (is_due()) {
            _product = product;
        }
    }

    /// @brief Computes the product that was due. It waits for the end of `update_tensor`, whose
    /// variables would leave too few registers.
    __device__ void finish() const {
        if (_product.out != nullptr) {
            ProductTile::multiply(_product, _part, _shared->product);
        }
    }

private:
    /// Accesses no states.
    struct NoStates {
        static constexpr bool is_all_packs = true;
        static constexpr bool needs_warp = false;

        __device__ bool is_aligned() const { return true; }
        template <bool whole, class Values>
        __device__ void load_states(std::size_t, std::size_t, Values&) const {}
        template <bool whole, class Values>
        __device__ void store_states(std::size_t, std::size_t, Values const&) const {}
    };

    [[nodiscard]] __device__ bool is_due() const { return _calls++ == _call.number; }
    [[nodiscard]] __device__ std::size_t begin() const { return _part * chunk_elements; }
    [[nodiscard]] __device__ auto weights() const {
        return access(decided(_slice->weights(), *_decision));
    }

    template <class Functor>
    [[nodiscard]] __device__ auto states() const {
        static_assert(Functor::states <= std::tuple_size_v<decltype(Pointers::states)>,
                      "zero: a functor of a whole-tensor optimizer uses more states than the "
                      "optimizer has.");
        if constexpr (Functor::states == 0) {
            return NoStates{};
        } else {
            using First = StatePointers<Functor::states, typename Pointers::Type>;
            auto const& all = _slice->all_states();
            First first;
            for (std::size_t state = 0; state != Functor::states; ++state) {
                element(first.states, state) = element(all.states, state);
            }
            if constexpr (requires { all.key; }) {
                return access(StochasticStates<First>{first, all.first_index, 0},
                              _decision->random_key);
            } else {
                return access(first, _decision->random_key);
            }
        }
    }

    template <class Functor, class G, class W>
    __device__ void run(G const* gradient, W const& to, float factor,
                        typename Functor::Hyper const& hyper) const {
        auto const from = states<Functor>();
        using States = std::remove_const_t<decltype(from)>;
        UpdatePack<Functor, G, W, States> const body{gradient, to, from, factor, hyper, begin()};
        for_packs<false, States::needs_warp>(
            elements_of_chunk(begin(), elements()),
            are_aligned(gradient) && to.is_aligned() && from.is_aligned(), body);
    }

    /// Adds the chunk of this block if the call is due. Returns the norm in later calls, and any
    /// number before.
    template <class Add>
    __device__ double norm_by(Add const& add) const {
        ops::Inspection& all = _sums[_norms++];
        if (_calls < _call.number) {
            ++_calls;
            if (threadIdx.x == 0) {
                _shared->norm = ops::l2_norm(all);
            }
            __syncthreads();
            double const norm = _shared->norm;
            __syncthreads(); // the next call uses the same memory
            return norm;
        }
        if (is_due()) {
            PackSum<NormKind::l2> sum(_shared->sum);
            add(sum);
            sum.end_chunks(1);
            sum.move_to(all);
        }
        return 1.0;
    }

    Slice const* _slice;
    UpdateDecision const* _decision;
    TensorShared* _shared;
    std::size_t _part;
    TensorCall _call;
    float _factor;
    ops::Inspection* _sums;
    mutable unsigned _calls = 0;                    ///< that were made so far
    mutable unsigned _norms = 0;                    ///< of them those of `norm`
    mutable zero::detail::MatrixProduct _product{}; ///< that is due
};

/// @brief Makes one call of `update_tensor` for all slices of the range, unless the decision is to
/// skip or to leave a slice. One block for each chunk; for a range of one slice also one for each
/// tile.
template <class Optimizer, class Slice, class Group>
ZERO_KERNEL void __launch_bounds__(block_threads, 2)
    tensor_kernel(TableRange<Slice> table, Group const* groups, UpdateDecision const* decision,
                  TensorCall call) {
    __shared__ TensorShared shared;
    if (decision->skip) {
        return;
    }
    bool const is_chunk = blockIdx.x < table.count;
    Chunk const chunk = table.chunks[is_chunk ? blockIdx.x : 0];
    Slice const& slice = table.slices[chunk.slice];
    Group const& group = groups[slice.group];
    if (is_left(group)) {
        return;
    }
    DeviceTensor const tensor(slice, *decision, factor_of(group, *decision), call,
                              chunk.slice - table.chunks[0].slice,
                              is_chunk ? chunk.index : blockIdx.x, shared);
    Optimizer::update_tensor(tensor, group.hyper);
    tensor.finish();
}

/// @brief One whole parameter on the host, which counts the calls of `update_tensor`.
class TensorCalls {
public:
    /// @param wanted number of a call
    TensorCalls(std::size_t elements, std::size_t rows, unsigned wanted) noexcept
        : _elements(elements), _rows(rows), _wanted(wanted) {}

    /// @brief Runs `update_tensor` for a parameter, by whatever constants: they decide no call.
    template <class Optimizer>
    [[nodiscard]] static TensorCalls of(std::size_t elements, std::size_t rows,
                                        unsigned wanted = 0) noexcept {
        TensorCalls const tensor(elements, rows, wanted);
        Optimizer::update_tensor(tensor, typename Optimizer::Hyper{});
        return tensor;
    }

    /// @brief Number of all calls, each of which is a launch.
    [[nodiscard]] unsigned calls() const noexcept { return _calls; }
    /// @brief Number of calls of `norm`.
    [[nodiscard]] unsigned norms() const noexcept { return _norms; }
    static constexpr std::size_t by_chunk = ~std::size_t{0}; ///< one block for each chunk

    /// @brief Blocks of the wanted call, or `by_chunk`; 0: it has no work.
    [[nodiscard]] std::size_t blocks() const noexcept { return _blocks; }

    [[nodiscard]] std::size_t elements() const noexcept { return _elements; }
    [[nodiscard]] std::size_t rows() const noexcept { return _rows; }
    [[nodiscard]] std::size_t columns() const noexcept {
        return _rows == 0 ? _elements : _elements / _rows;
    }
    /// An address that is none: a null pointer must not be added to.
    [[nodiscard]] float* scratch() const noexcept {
        return reinterpret_cast<float*>(alignof(float));
    }

    template <class Functor>
    void update(typename Functor::Hyper const&) const noexcept {
        call(by_chunk);
    }
    template <class Functor>
    void update(float const*, typename Functor::Hyper const&) const noexcept {
        call(by_chunk);
    }
    template <class Functor>
    void write(float*, typename Functor::Hyper const&) const noexcept {
        call(by_chunk);
    }
    template <class Functor>
    [[nodiscard]] double norm(typename Functor::Hyper const&) const noexcept {
        ++_norms;
        call(by_chunk);
        return 1.0;
    }
    [[nodiscard]] double norm(float const*, std::size_t n) const noexcept {
        ++_norms;
        call(chunks_of(n));
        return 1.0;
    }
    void scale(float*, std::size_t n, float) const noexcept { call(chunks_of(n)); }
    void transpose(float*, float const*, std::size_t rows, std::size_t columns) const noexcept {
        call(chunks_of(rows * columns));
    }
    void multiply(zero::detail::MatrixProduct const& product) const noexcept {
        call(ProductTile::count(product));
    }

private:
    void call(std::size_t blocks) const noexcept {
        _blocks = _calls++ == _wanted ? blocks : _blocks;
    }

    std::size_t _elements;
    std::size_t _rows;
    unsigned _wanted;
    mutable unsigned _calls = 0;
    mutable unsigned _norms = 0;
    mutable std::size_t _blocks = 0;
};

template <class Optimizer>
struct TensorUpdates {
    /// @brief Floats that the sums of a parameter's norms take.
    static std::size_t norm_floats(std::size_t elements, std::size_t rows) noexcept {
        return TensorCalls::of<Optimizer>(elements, rows).norms() * sizeof(ops::Inspection)
               / sizeof(float);
    }

    /// @brief Enqueues one optimizer step: parameters that need no scratch memory together, as long
    /// as they take the same number of calls, others one after another.
    /// @throws CudaError
    template <class Slice, class Group>
    ZERO_CUDA_HIDDEN static void enqueue(cudaStream_t stream, TableRange<Slice> const& table,
                                         Group const* groups, UpdateDecision const* decision) {
        auto const needs_scratch = [](Slice const& slice) {
            return Optimizer::scratch_floats(
                       slice.rows, slice.rows == 0 ? slice.elements : slice.elements / slice.rows)
                   != 0;
        };
        auto rest = table;
        for (std::size_t first = 0; first != table.host_count; rest.chunks += rest.count) {
            Slice const& slice = table.host_slices[first];
            auto const calls = TensorCalls::of<Optimizer>(slice.elements, slice.rows);
            unsigned norms = calls.norms();
            rest.count = chunks_of(slice.elements);
            std::size_t next = first + 1;
            for (; !needs_scratch(slice) && next != table.host_count; ++next) {
                Slice const& other = table.host_slices[next];
                auto const more = TensorCalls::of<Optimizer>(other.elements, other.rows);
                if (needs_scratch(other) || more.calls() != calls.calls()) {
                    break;
                }
                norms = zero::detail::larger(norms, more.norms());
                rest.count += chunks_of(other.elements);
            }
            if (norms != 0 && rest.count != 0) {
                CaptureLock const lock(stream);
                check(cudaMemsetAsync(slice.scratch, 0,
                                      (next - first) * norms * sizeof(ops::Inspection), stream),
                      "cudaMemsetAsync");
            }
            for (unsigned call = 0; rest.count != 0 && call != calls.calls(); ++call) {
                auto const blocks =
                    TensorCalls::of<Optimizer>(slice.elements, slice.rows, call).blocks();
                launch(stream, blocks == TensorCalls::by_chunk ? rest.count : blocks, block_threads,
                       tensor_kernel<Optimizer, Slice, Group>, rest, groups, decision,
                       TensorCall{call, norms});
            }
            first = next;
        }
    }
};

} // namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE

#pragma nv_diagnostic pop
