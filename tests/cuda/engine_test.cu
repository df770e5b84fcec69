#include "cuda/device_model.cuh"

#include "support/stages.hpp"

#include <zero/comm/experts.hpp>
#include <zero/comm/model_parallel.hpp>
#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/whole_matrix_partitioner.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/ops/muon.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/policy/averaged.hpp>
#include <zero/stage/averaged_weights.hpp>
#include <zero/stage/joint_step.hpp>
#include <zero/stage/training_state.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

// The engine on a device with ranks as threads: every stage gives the bits of the host's engine.

namespace zero::test::engine_test {

namespace {

using DeviceLoopback = Loopback<cuda::Backend>;

template <int N, class... Policies>
using HostStage = ZeroStage<N, Policies..., SizeCappedBucketer>;
template <int N, class... Policies>
using DeviceStage = ZeroStage<N, Policies..., SizeCappedBucketer, DeviceLoopback>;

template <class... Policies, class Configure>
void compare_all_stages(Configure const& configure,
                        std::vector<ParameterSpec> const& specs = toy_specs(),
                        std::vector<int> const& worlds = {1, 2, 3, 4, 8}) {
    for (int const world : worlds) {
        INFO("world " << world);
        typename HostStage<0, Policies...>::Options host_options;
        configure(host_options);
        Trained const expected =
            trained<HostStage<0, Policies...>>(world, host_options, {.specs = specs});
        in_every_stage([&]<int N>() {
            using Stage = DeviceStage<N, Policies...>;
            typename Stage::Options options;
            configure(options);
            CHECK(trained_on_device<Stage>(world, options, 4, 0.01, 24, specs) == expected);
        });
    }
}

/// Runs a micro-step, whose gradients are NaN if it `overflows`.
template <class Engine>
void run_or_overflow(Engine& engine, cudaStream_t stream, std::uint64_t rank, std::uint64_t step,
                     std::uint64_t micro_step, bool overflows) {
    run_device_micro_step(engine, stream, rank, step, micro_step, 24, [&](auto const& gradient) {
        if (overflows) { // every bit set is a NaN
            cuda::detail::check(
                cudaMemsetAsync(gradient.data(), 255, gradient.size_bytes(), stream),
                "cudaMemsetAsync");
        }
    });
}

} // namespace

TEST_CASE("Every stage on a device gives the bits of the host for bfloat16 parameters with AdamW "
          "and clipping",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    compare_all_stages<Parameters<bfloat16>>(
        [](auto& options) { options.gradient_clipping = 0.5F; });
}

TEST_CASE("Every stage on a device gives the bits of the host for optimizers of whole parameters",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    auto const configure = [](auto& options) {
        options.gradient_clipping = 0.5F;
        options.bucketer.bucket_bytes = 1024;
        options.poison = true;
    };
    compare_all_stages<Parameters<bfloat16>, Lamb, BalancedPartitioner>(configure, toy_specs(),
                                                                        {1, 2, 3});
    std::mt19937 random(1);
    for (int const world : {1, 2, 4}) {
        auto specs = toy_specs();
        for (std::size_t const index : {1U, 3U, 5U}) {
            specs[index].rows = 1 + random() % 40;
            specs[index].elements = specs[index].rows * (1 + random() % 40);
        }
        compare_all_stages<Muon, WholeMatrixPartitioner>(configure, specs, {world});
    }
}

TEST_CASE("A comparison of runs on device and host detects another learning rate", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using Stage = DeviceStage<2, Parameters<bfloat16>>;
    Trained const expected = trained<HostStage<2, Parameters<bfloat16>>>(2);
    CHECK(trained_on_device<Stage>(2) == expected);
    CHECK_FALSE(trained_on_device<Stage>(2, {}, 4, 0.0101) == expected);
}

TEST_CASE("Parameters in caller-owned device memory, scattered or in one block, give the bits of "
          "owned ones",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    Trained const expected = trained<HostStage<2, Parameters<bfloat16>>>(3);
    for (Storage const storage : {Storage::scattered, Storage::adopted}) {
        DeviceStage<1, Parameters<bfloat16>>::Options options;
        options.storage = storage;
        CHECK(trained_on_device<DeviceStage<1, Parameters<bfloat16>>>(3, options) == expected);
        CHECK(trained_on_device<DeviceStage<2, Parameters<bfloat16>>>(3, options) == expected);
    }
}

TEST_CASE(
    "A CUDA error that the program leaves before each micro-step changes no bit and stays the "
    "program's",
    "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using Stage = DeviceStage<2, Parameters<bfloat16>>;
    std::atomic<int> kept{0};
    auto const train = [&](bool leaves_errors) {
        return merged(on_ranks<Trained, DeviceLoopback>(2, [&](DeviceLoopback& communicator) {
            auto parameters = registration<bfloat16>(toy_specs());
            DeviceParameters<bfloat16, bfloat16> const memory(parameters);
            cuda::OwnedStream const stream;
            Stage::Options options;
            options.compute_queue = stream.get();
            options.storage = Storage::scattered; // copied to buckets and back
            Stage engine(communicator, parameters, options);
            for (std::uint64_t step = 0; step < 2; ++step) {
                engine.begin_step();
                for (auto const micro_step : engine.micro_steps(2)) {
                    if (leaves_errors) {
                        (void)cudaSetDevice(-1);
                    }
                    run_device_micro_step(engine, stream.get(),
                                          static_cast<std::uint64_t>(communicator.rank()), step,
                                          micro_step, 24);
                }
                (void)engine.step(0.01);
                kept += cudaGetLastError() == cudaErrorInvalidDevice ? 1 : 0;
            }
            Trained result;
            collect(engine, toy_specs(), result);
            return result;
        }));
    };
    Trained const expected = train(false);
    CHECK(kept == 0);
    CHECK(train(true) == expected);
    CHECK(kept == 4);
}

TEST_CASE("Poisoned padding and reused memory change no bit on a device", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    Trained const expected = trained<HostStage<3, Parameters<bfloat16>>>(3);
    in_every_stage([&]<int N>() {
        typename DeviceStage<N, Parameters<bfloat16>>::Options options;
        options.poison = true;
        CHECK(trained_on_device<DeviceStage<N, Parameters<bfloat16>>>(3, options) == expected);
    });
}

TEST_CASE("The memory plan equals what an engine allocates on a device", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    auto specs = toy_specs();
    specs[1].rows = 20; // of 25 columns
    auto const compare = [&]<class Stage>(Stage*) {
        auto const differences =
            on_ranks<int, DeviceLoopback>(2, [&](DeviceLoopback& communicator) {
                auto const parameters = registration<bfloat16>(specs);
                cuda::OwnedStream const stream;
                CountingMemory memory;
                typename Stage::Options options;
                options.compute_queue = stream.get();
                options.memory = &memory;
                Stage const engine(communicator, parameters, options);
                auto plan = engine.memory_plan();
                int wrong = 0;
                for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
                    auto const of = static_cast<BufferKind>(kind);
                    wrong +=
                        memory.bytes(of) == (plan[of].is_callers ? 0 : plan[of].bytes()) ? 0 : 1;
                }
                return wrong;
            });
        CHECK(differences == std::vector<int>{0, 0});
    };
    in_every_stage([&]<int N>() {
        compare(static_cast<DeviceStage<N, Parameters<bfloat16>>*>(nullptr));
        using Whole = DeviceStage<N, Parameters<bfloat16>, BalancedPartitioner>;
        compare(static_cast<typename Whole::template with<Muon>*>(nullptr));
    });
}

TEST_CASE("A stage on a device without a compute queue is refused", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using Stage = DeviceStage<2, Parameters<bfloat16>>;
    auto const outcomes = run_and_observe<DeviceLoopback>(1, [](DeviceLoopback& communicator) {
        auto const parameters = registration<bfloat16>(toy_specs());
        Stage const engine(communicator, parameters, {});
    });
    CHECK(outcomes.ranks[0].type == "InvalidArgument");
    CHECK(outcomes.ranks[0].message.find("compute_queue") != std::string::npos);
}

TEST_CASE("Host memory for a gradient, or for parameters that the engine does not own, is refused "
          "with the parameter's name",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using Stage = DeviceStage<2, Parameters<bfloat16>>;
    int shares_page_tables = 0;
    cuda::detail::check(
        cudaDeviceGetAttribute(&shares_page_tables, cudaDevAttrPageableMemoryAccess, 0),
        "cudaDeviceGetAttribute");
    auto const message_of = [](bool are_values) {
        std::vector<bfloat16> memory(500);
        return run_and_observe<DeviceLoopback>(
                   1,
                   [&](DeviceLoopback& communicator) {
                       cuda::OwnedStream const stream;
                       std::vector<Parameter<bfloat16>> parameters{
                           {.name = "layer.weight", .elements = 500}};
                       (are_values ? parameters[0].data : parameters[0].gradient) = memory.data();
                       Stage::Options options;
                       options.compute_queue = stream.get();
                       options.storage = are_values ? Storage::scattered : Storage::owned;
                       Stage const engine(communicator, parameters, options);
                   })
            .ranks[0]
            .message;
    };
    for (bool const are_values : {false, true}) {
        std::string const message = message_of(are_values);
        CAPTURE(message);
        if (shares_page_tables == 0) {
            CHECK(message.find(are_values
                                   ? "the memory for the values of parameter 'layer.weight'"
                                   : "the memory for the gradient of parameter 'layer.weight'")
                  != std::string::npos);
        } else {
            CHECK(message.empty());
        }
    }
}

TEST_CASE("Norms of gradients and the report of a step equal the host's", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using Device = DeviceStage<2, Parameters<bfloat16>>;
    using Host = HostStage<2, Parameters<bfloat16>>;
    auto const on_device =
        on_ranks<std::vector<double>, DeviceLoopback>(2, [](DeviceLoopback& communicator) {
            auto const parameters = registration<bfloat16>(toy_specs());
            cuda::OwnedStream const stream;
            Device::Options options;
            options.compute_queue = stream.get();
            options.gradient_clipping = 0.5F;
            Device engine(communicator, parameters, options);
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(2)) {
                run_device_micro_step(engine, stream.get(),
                                      static_cast<std::uint64_t>(communicator.rank()), 0,
                                      micro_step, 24);
            }
            auto norms = engine.gradient_norms(NormKind::l1, NormScope::parameters);
            auto const report = engine.step(0.01).report();
            norms.insert(norms.end(),
                         {report.gradient_norm, static_cast<double>(report.clip_coefficient),
                          static_cast<double>(report.step_count)});
            return norms;
        });
    auto const on_the_host =
        on_ranks<std::vector<double>>(2, [](LoopbackCommunicator& communicator) {
            auto const parameters = registration<bfloat16>(toy_specs());
            Host::Options options;
            options.gradient_clipping = 0.5F;
            Host engine(communicator, parameters, options);
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(2)) {
                run_micro_step(engine, static_cast<std::uint64_t>(communicator.rank()), 0,
                               micro_step, 1.0F, 24);
            }
            auto norms = engine.gradient_norms(NormKind::l1, NormScope::parameters);
            auto const report = engine.step(0.01).report();
            norms.insert(norms.end(),
                         {report.gradient_norm, static_cast<double>(report.clip_coefficient),
                          static_cast<double>(report.step_count)});
            return norms;
        });
    CHECK(on_device == on_the_host);
}

TEST_CASE("The count of zeros and the norms of groups in a report have the bits of the host, in "
          "every stage",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using Figures = std::vector<double>;
    auto const figures = [](auto& engine, auto const& run) {
        Figures found;
        for (std::uint64_t step = 0; step < 2; ++step) {
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(2)) {
                run(step, micro_step);
            }
            StepReport const report = engine.step(0.01).report();
            found.push_back(report.gradient_norm);
            found.push_back(static_cast<double>(report.zero_gradients));
            found.insert(found.end(), report.group_norms.begin(), report.group_norms.end());
        }
        return found;
    };
    constexpr auto schedule = ReductionSchedule::every_micro_step;
    constexpr ReportOptions all{.zero_gradients = true, .group_norms = true};
    auto const expected = on_ranks<Figures>(3, [&](LoopbackCommunicator& communicator) {
        HostStage<0, Parameters<bfloat16>> engine(
            communicator, registration<bfloat16>(toy_specs()),
            {.gradient_clipping = 0.5F, .report = all, .reduction = {.schedule = schedule}});
        return figures(engine, [&](std::uint64_t step, std::uint64_t micro_step) {
            run_micro_step(engine, static_cast<std::uint64_t>(communicator.rank()), step,
                           micro_step, 1.0F, 24);
        });
    });
    CHECK(expected[0].size() == 2 * (2 + 2));
    in_every_stage([&]<int N>() {
        auto const found = on_ranks<Figures, DeviceLoopback>(3, [&](DeviceLoopback& communicator) {
            cuda::OwnedStream const stream;
            DeviceStage<N, Parameters<bfloat16>> engine(communicator,
                                                        registration<bfloat16>(toy_specs()),
                                                        {.gradient_clipping = 0.5F,
                                                         .report = all,
                                                         .reduction = {.schedule = schedule},
                                                         .compute_queue = stream.get()});
            return figures(engine, [&](std::uint64_t step, std::uint64_t micro_step) {
                run_device_micro_step(engine, stream.get(),
                                      static_cast<std::uint64_t>(communicator.rank()), step,
                                      micro_step, 24);
            });
        });
        CHECK(found == expected);
    });
}

TEST_CASE("Two parts of a model have the norm of both on a device, with the bits of the host, and "
          "skip a step together",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using Figures = std::vector<double>;
    auto parameters = registration<bfloat16>(toy_specs());
    parameters.back().counts_on = CountsOn::first_model_rank;
    auto const figures = [&](auto& engine, std::uint64_t part, auto const& run) {
        Figures found;
        for (std::uint64_t step = 0; step < 3; ++step) {
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                run(step, micro_step, step == 1 && part == 1);
            }
            if (step == 0) {
                found = engine.gradient_norms(NormKind::l2, NormScope::parameters);
            }
            StepReport const report = engine.step(0.01).report();
            found.insert(found.end(), {report.gradient_norm, report.is_skipped ? 1.0 : 0.0,
                                       static_cast<double>(report.non_finite_count),
                                       static_cast<double>(report.next_loss_scale)});
        }
        return found;
    };
    auto const of_part = [](auto& ranks) {
        return static_cast<std::uint64_t>(ranks.model().rank());
    };
    auto const place = [&](auto& ranks) {
        return static_cast<std::uint64_t>(ranks.rank()) + 2 * of_part(ranks);
    };
    using HostRanks = Groups<LoopbackCommunicator, ModelParallel>;
    std::vector<Figures> expected(4);
    run_ranks<HostRanks>(4, test_time_out, {.model = 2}, [&](HostRanks& ranks) {
        ZeroStage<2, Parameters<bfloat16>, DynamicLossScaler, HostRanks> engine(ranks, parameters);
        expected[place(ranks)] =
            figures(engine, of_part(ranks),
                    [&](std::uint64_t step, std::uint64_t micro_step, bool overflows) {
                        float const scale = overflows ? std::numeric_limits<float>::infinity()
                                                      : float{engine.loss_scale()};
                        run_micro_step(engine, place(ranks), step, micro_step, scale, 24);
                    });
    });
    CHECK(expected[0].end()[-7] == 1.0); // the second step was skipped
    CHECK(expected[0].end()[-4] == expected[2].end()[-4]);
    using DeviceRanks = Groups<DeviceLoopback, ModelParallel>;
    std::vector<Figures> found(4);
    run_ranks<DeviceRanks>(4, test_time_out, {.model = 2}, [&](DeviceRanks& ranks) {
        cuda::OwnedStream const stream;
        ZeroStage<2, Parameters<bfloat16>, DynamicLossScaler, DeviceRanks> engine(
            ranks, parameters, {.compute_queue = stream.get()});
        found[place(ranks)] = figures(
            engine, of_part(ranks),
            [&](std::uint64_t step, std::uint64_t micro_step, bool overflows) {
                run_or_overflow(engine, stream.get(), place(ranks), step, micro_step, overflows);
            });
    });
    CHECK(found == expected);
}

TEST_CASE("A dense part and experts that step together have the norm of both on a device, with the "
          "bits of the host, and skip a step together",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using Figures = std::vector<double>;
    // The parameters of two engines: the experts of each of 2 ranks have names of their own.
    auto const train = [](auto& everyone, auto stage, auto expert_stage, auto queue,
                          auto const& run) {
        using Dense = typename decltype(stage)::type;
        using Sparse = typename decltype(expert_stage)::type;
        using Ranks = typename Sparse::Communicator;
        Ranks ranks(everyone, {.experts = 2});
        auto specs = toy_specs();
        for (auto& spec : specs) {
            spec.name += "." + std::to_string(ranks.model().rank());
        }
        typename Dense::Options options;
        options.gradient_clipping = 0.5F;
        typename Sparse::Options of_experts;
        of_experts.gradient_clipping = 0.5F;
        if constexpr (!std::is_same_v<decltype(queue), std::nullptr_t>) {
            options.compute_queue = queue;
            of_experts.compute_queue = queue;
        }
        Dense dense(everyone, registration<bfloat16>(toy_specs()), options);
        Sparse experts(ranks, registration<bfloat16>(specs), of_experts);
        JointStep joint(dense, experts);
        auto const rank = static_cast<std::uint64_t>(everyone.rank());
        Figures found;
        for (std::uint64_t step = 0; step < 4; ++step) {
            joint.begin_step();
            for (auto const micro_step : dense.micro_steps(1)) {
                run(dense, rank, step, micro_step, false);
            }
            for (auto const micro_step : experts.micro_steps(1)) {
                run(experts, rank + 10, step, micro_step, step == 1 && rank == 3);
            }
            auto const [of_dense, of_both] = joint.step(0.01);
            for (StepReport const& report : {of_dense.report(), of_both.report()}) {
                found.insert(found.end(), {report.gradient_norm, report.is_skipped ? 1.0 : 0.0,
                                           static_cast<double>(report.clip_coefficient),
                                           static_cast<double>(report.next_loss_scale)});
            }
        }
        return found;
    };
    using S = DynamicLossScaler;
    using B = Parameters<bfloat16>;
    using HostExperts = Groups<LoopbackCommunicator, Experts>;
    auto const expected = on_ranks<Figures>(4, [&](LoopbackCommunicator& everyone) {
        return train(everyone, std::type_identity<ZeroStage<3, B, S>>(),
                     std::type_identity<ZeroStage<2, B, S, HostExperts>>(), nullptr,
                     [](auto& engine, std::uint64_t rank, std::uint64_t step,
                        std::uint64_t micro_step, bool overflows) {
                         float const scale = overflows ? std::numeric_limits<float>::infinity()
                                                       : float{engine.loss_scale()};
                         run_micro_step(engine, rank, step, micro_step, scale, 24);
                     });
    });
    CHECK(expected[0][0] == expected[0][4]);
    CHECK(expected[0][9] == 1.0); // the second step was skipped in both
    CHECK(expected[0][13] == 1.0);
    CHECK(expected[0] == expected[3]);
    using DeviceExperts = Groups<DeviceLoopback, Experts>;
    auto const found = on_ranks<Figures, DeviceLoopback>(4, [&](DeviceLoopback& everyone) {
        cuda::OwnedStream const stream;
        return train(everyone, std::type_identity<ZeroStage<3, B, S, DeviceLoopback>>(),
                     std::type_identity<ZeroStage<2, B, S, DeviceExperts>>(), stream.get(),
                     [&](auto& engine, std::uint64_t rank, std::uint64_t step,
                         std::uint64_t micro_step, bool overflows) {
                         run_or_overflow(engine, stream.get(), rank, step, micro_step, overflows);
                     });
    });
    CHECK(found == expected);
}

TEST_CASE("The stream that an engine makes for its communication has the highest priority",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    int least = 0;
    int greatest = 0;
    cuda::detail::check(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                        "cudaDeviceGetStreamPriorityRange");
    auto const priority_of = [](cudaStream_t stream) {
        int priority = 1;
        cuda::detail::check(cudaStreamGetPriority(stream, &priority), "cudaStreamGetPriority");
        return priority;
    };
    cuda::Backend::OwnedQueue queue;
    cuda::OwnedStream const models;
    CHECK(priority_of(cuda::Backend::handle(queue)) == greatest);
    CHECK(priority_of(models.get()) == least);
}

namespace {

using Values = std::vector<std::vector<float>>;

/// Averages after three steps, what `AveragedWeights` shows of them, and the weights around it.
template <class Stage, class Run>
std::vector<Values> seen_averages(typename Stage::Communicator& communicator,
                                  typename Stage::Options options, Run const& run) {
    options.optimizer.decay = 0.5;
    Stage engine(
        communicator,
        registration<typename Stage::ParameterType, typename Stage::GradientType>(toy_specs()),
        options);
    for (std::uint64_t step = 0; step < 3; ++step) {
        run(engine, static_cast<std::uint64_t>(communicator.rank()), step);
    }
    auto const all = [&](bool are_states) {
        TrainingState state(engine);
        Values values;
        for (std::size_t p = 0; p < toy_specs().size(); ++p) {
            bool const is_state = are_states && toy_specs()[p].trainable;
            values.push_back(is_state ? state.full_optimizer_state(p, "average")
                                      : state.full_fp32_parameter(p));
        }
        return values;
    };
    std::vector<Values> seen{all(false), all(true)};
    {
        AveragedWeights const averages(engine);
        seen.push_back(all(false));
    }
    seen.push_back(all(false));
    return seen;
}

} // namespace

TEST_CASE("An average of the weights on a device has the bits of the host's, and can be shown",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    auto const expected = on_ranks<std::vector<Values>>(2, [](LoopbackCommunicator& communicator) {
        using Stage = HostStage<2, Parameters<bfloat16>, Averaged<AdamW>>;
        return seen_averages<Stage>(communicator, {}, [](auto& engine, auto rank, auto step) {
            (void)run_step(engine, rank, step);
        });
    });
    CHECK(expected[0][2] == expected[0][1]);
    CHECK(expected[0][3] == expected[0][0]);
    CHECK_FALSE(expected[0][1] == expected[0][0]);
    in_every_stage([&]<int N>() {
        using Stage = DeviceStage<N, Parameters<bfloat16>, Averaged<AdamW>>;
        auto const found =
            on_ranks<std::vector<Values>, DeviceLoopback>(2, [](DeviceLoopback& communicator) {
                cuda::OwnedStream const stream;
                typename Stage::Options options;
                options.compute_queue = stream.get();
                return seen_averages<Stage>(
                    communicator, options, [&](auto& engine, auto rank, auto step) {
                        (void)run_device_step(engine, stream.get(), rank, step, 1, 0.01, 0);
                    });
            });
        CHECK(found == expected);
    });
}

} // namespace zero::test::engine_test
