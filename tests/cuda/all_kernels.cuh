#pragma once

// Every kernel of the library in every form that a policy can require.

#include <zero/cuda/backend.cuh>
#include <zero/ops/adagrad.hpp>
#include <zero/ops/adam.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/ops/lion.hpp>
#include <zero/ops/muon.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/policy/detail/policy_list.hpp>
#include <zero/policy/static_loss_scaler.hpp>
#include <zero/stage/detail/compose/diagnose_stage.hpp>
#include <zero/stage/detail/compose/stage_base.hpp>
#include <zero/stage/wire.hpp>

#include <cstdint>
#include <vector>

namespace zero::test {

namespace kernels = cuda::detail; // their names end in _kernel

class KernelList {
public:
    template <class... Parameters>
    void add(void (*kernel)(Parameters...)) {
        addresses.push_back(reinterpret_cast<void const*>(kernel));
    }

    template <class To, class From>
    void add_casts() {
        add(kernels::convert_kernel<true, To, From>);
        add(kernels::convert_kernel<false, To, From>);
        add(kernels::accumulate_kernel<To, From>);
        add(kernels::copy_table_kernel<true, From, To>);
        add(kernels::copy_table_kernel<false, To, From const>);
    }

    template <class C, class T>
    void add_codes() {
        add(kernels::encode_kernel<C, CopySlice<T>, T>);
        add(kernels::encode_kernel<C, CodedSlice, T>);
        add(kernels::feedback_kernel<C, float, T, float>);
        add(kernels::feedback_kernel<C, Int8Blocks, T, std::uint8_t>);
        add(kernels::decode_kernel<C, T>);
        add(kernels::decode_sum_kernel<C, T>);
    }

    template <class T>
    void add_codes() {
        add_codes<Int8Blocks, T>();
        add_codes<Int4Blocks, T>();
    }

    template <class A, class T>
    void add_tree() {
        add(kernels::sum_tree_kernel<A, T, kernels::few_peers>);
        add(kernels::sum_tree_kernel<A, T, kernels::most_peers>);
    }

    template <class T>
    void add_reductions() {
        add(kernels::sum_ranks_kernel<T, kernels::few_peers>);
        add(kernels::sum_ranks_kernel<T, kernels::most_peers>);
        add(kernels::inspect_kernel<T>);
        add(kernels::count_zeros_kernel<T>);
        add(kernels::norms_kernel<NormKind::l1, T>);
        add(kernels::norms_kernel<NormKind::l2, T>);
        add(kernels::norms_kernel<NormKind::infinity, T>);
    }

    template <class Optimizer, class A, class Weights, class States>
    void add_update() {
        add(kernels::update_kernel<Optimizer, UpdateSlice<A, Weights, States>,
                                   detail::GroupState<Optimizer>>);
    }

    template <class Optimizer, class A, class Weights, class States>
    void add_tensors() {
        add(kernels::tensor_kernel<Optimizer, UpdateSlice<A, Weights, States>,
                                   detail::GroupState<Optimizer>>);
    }

    template <class Stage>
    void add_commands() {
        using Step = detail::StepOf<typename detail::StageConfig<2, Stage>::EngineConfig>;
        add(kernels::run_kernel<detail::DecideStep<Step>>);
        add(kernels::run_kernel<detail::DecideParameters<Step>>);
        add(kernels::run_kernel<detail::CaptureScale<Step>>);
        add(kernels::run_kernel<detail::ClearInspection<Step>>);
        add(kernels::run_kernel<detail::EndErrors<Step>>);
        add(kernels::run_kernel<detail::Assign<typename Step::Optimizer::Options>>);
        add(kernels::run_kernel<detail::Assign<typename Step::LossScaler::State>>);
    }

    std::vector<void const*> addresses;
};

inline std::vector<void const*> all_kernels() {
    KernelList list;
    list.add(kernels::fill_kernel<std::uint16_t>);
    list.add(kernels::fill_kernel<std::uint32_t>);
    list.add(kernels::fill_kernel<std::uint64_t>);
    list.add(kernels::arithmetic_kernel<>);
    list.add(kernels::combine_integers_kernel<kernels::few_peers>);
    list.add(kernels::combine_integers_kernel<kernels::most_peers>);
    list.add_casts<float, float>();
    list.add_casts<float, bfloat16>();
    list.add_casts<float, float16>();
    list.add_casts<bfloat16, float>();
    list.add_casts<bfloat16, bfloat16>();
    list.add_casts<float16, float>();
    list.add_casts<float16, float16>();
    list.add_codes<float>();
    list.add_codes<bfloat16>();
    list.add_codes<float16>();
    list.add_tree<float, float>();
    list.add_tree<float, bfloat16>();
    list.add_tree<float, float16>();
    list.add_tree<bfloat16, bfloat16>();
    list.add_reductions<float>();
    list.add_reductions<bfloat16>();
    list.add_reductions<float16>();
    using Moments = StatePointers<2, float>;
    list.add_update<AdamW, float, MasterPointers<float, bfloat16>, Moments>();
    list.add_update<AdamW, float, MasterPointers<float, float16>, Moments>();
    list.add_update<AdamW, float, MasterPointers<float16, bfloat16>, Moments>();
    list.add_update<AdamW, float, MasterPointers<float, float>, Moments>();
    list.add_update<AdamW, bfloat16, MasterPointers<bfloat16, bfloat16>, Moments>();
    list.add_update<AdamW, float, SplitPointers, Moments>();
    list.add_update<AdamW, float, StochasticPointers<bfloat16>, Moments>();
    list.add_update<AdamW, float, StochasticPointers<float16>, Moments>();
    list.add_update<AdamW, float, MasterPointers<float, bfloat16>, StatePointers<2, bfloat16>>();
    list.add_update<AdamW, float, MasterPointers<float, bfloat16>, ScaledStatePointers<2>>();
    list.add_update<AdamW, float, MasterPointers<float, bfloat16>,
                    StochasticStates<StatePointers<2, bfloat16>>>();
    list.add_update<AdamW, float, MasterPointers<float, bfloat16>,
                    StochasticStates<ScaledStatePointers<2>>>();
    list.add_update<AdamW, float, SplitPointers, ScaledStatePointers<2>>();
    list.add_update<AdamW, float, MasterPointers<float, bfloat16>,
                    StochasticStates<ScaledStatePointers<2, power8>>>();
    list.add_update<Adam, float, MasterPointers<float, bfloat16>,
                    StatePointers<Adam::states, float>>();
    list.add_update<Sgd, float, MasterPointers<float, bfloat16>,
                    StatePointers<Sgd::states, float>>();
    list.add_update<Lion, float, MasterPointers<float, bfloat16>,
                    StatePointers<Lion::states, float>>();
    list.add_update<Adagrad, float, MasterPointers<float, bfloat16>,
                    StatePointers<Adagrad::states, float>>();
    list.add_tensors<Lamb, float, MasterPointers<float, bfloat16>, Moments>();
    list.add_tensors<Lamb, float, SplitPointers, StochasticStates<StatePointers<2, bfloat16>>>();
    list.add_tensors<Muon, float, MasterPointers<float, bfloat16>, Moments>();
    list.add_tensors<Muon, bfloat16, MasterPointers<bfloat16, bfloat16>, Moments>();
    list.add(kernels::run_kernel<detail::Assign<std::int64_t>>);
    list.add(kernels::run_kernel<detail::Assign<float>>);
    list.add(kernels::run_kernel<detail::Assign<double>>);
    list.add(kernels::run_kernel<detail::Assign<RunningNorm>>);
    list.add(kernels::run_kernel<detail::NoteUnused>);
    list.add(kernels::run_kernel<detail::RescaleErrors>);
    list.add(kernels::run_kernel<detail::ClearMissed>);
    list.add_commands<DynamicLossScaler>();
    list.add_commands<StaticLossScaler>();
    list.add_commands<Sgd>();
    list.add_commands<StochasticRounding>();
    return list.addresses;
}

} // namespace zero::test
