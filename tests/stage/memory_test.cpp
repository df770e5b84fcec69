#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/dealt_group_partitioner.hpp>
#include <zero/layout/lease_plan.hpp>
#include <zero/layout/proportional_partitioner.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/whole_group_partitioner.hpp>
#include <zero/layout/whole_matrix_partitioner.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

// The memory plan equals the allocations exactly, row by row, and everything is freed.

namespace zero::test::memory_test {

namespace {

using Bytes = std::array<std::size_t, buffer_kinds>;

/// The accounts of one rank: the plan, the allocations while the engine exists (before and after a
/// step), and what is left afterwards.
struct Account {
    MemoryPlan plan;
    Bytes planned{}, allocated{}, after_step{}, left{};
};

Bytes allocated_by(HostMemoryResource const& memory) {
    Bytes bytes{};
    for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
        bytes[kind] = memory.allocated_bytes(static_cast<BufferKind>(kind));
    }
    return bytes;
}

template <int N, class Partitioner, class... Types>
std::vector<Account> account_of(std::vector<ParameterSpec> const& specs, int world,
                                Storage storage = Storage::owned, std::size_t bucket_bytes = 2048,
                                bool one_micro_step = false) {
    using Stage = ZeroStage<N, Partitioner, SizeCappedBucketer, Types...>;
    using T = typename Stage::ParameterType;
    return on_ranks<Account>(world, [&](LoopbackCommunicator& communicator) {
        auto parameters = registration<T, typename Stage::GradientType>(specs);
        std::size_t elements = 0;
        for (auto const& spec : specs) {
            elements += spec.elements;
        }
        std::vector<T> block(elements);
        std::vector<typename Stage::GradientType> gradients(elements);
        HostMemoryResource memory;
        typename Stage::Options options{.storage = storage,
                                        .bucketer = {.bucket_bytes = bucket_bytes},
                                        .reduction = {.one_micro_step = one_micro_step},
                                        .memory = &memory};
        if constexpr (requires { options.partitioner.shares; }) {
            for (int rank = 0; rank < world; ++rank) {
                options.partitioner.shares.push_back(1.0 + 2 * rank);
            }
        }
        if (storage != Storage::owned) {
            std::size_t begin = 0;
            for (auto& parameter : parameters) {
                parameter.initialise = nullptr;
                parameter.data = block.data() + begin;
                parameter.gradient =
                    parameter.trainable
                        ? gradients.data() + begin
                        : nullptr; // in an adopted block a gradient may be in several buckets
                begin += parameter.elements;
            }
            options.adopted_block =
                storage == Storage::adopted ? std::span<T>(block) : std::span<T>();
        }
        Account account;
        {
            Stage engine(communicator, parameters, options);
            account.plan = engine.memory_plan();
            for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
                account.planned[kind] =
                    account.plan.rows[kind].is_callers ? 0 : account.plan.rows[kind].bytes();
            }
            account.allocated = allocated_by(memory);
            // gradients of an adopted block are reduced in place, once per step
            std::size_t const micro_steps = storage == Storage::adopted || one_micro_step ? 1 : 2;
            (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), 0, micro_steps)
                .report();
            account.after_step = allocated_by(memory);
        }
        account.left = allocated_by(memory);
        return account;
    });
}

std::vector<ParameterSpec> tiny_gpt() {
    constexpr std::size_t width = 24;
    std::vector<ParameterSpec> specs{{"wte", 97 * width, {0, 3}, 0, true},
                                     {"wpe", 16 * width, {0}, 0, true}};
    for (std::size_t layer = 1; layer <= 2; ++layer) {
        for (auto const& [name, elements] : {std::pair{"ln1", 2 * width},
                                             {"qkv", 3 * width * width + 3 * width},
                                             {"proj", width * width},
                                             {"fc", 4 * width * width},
                                             {"proj2", 4 * width * width}}) {
            specs.push_back({"h" + std::to_string(layer) + name, elements, {layer}, 0, true});
        }
    }
    specs.push_back({"lnf", 2 * width, {3}, 0, true});
    return specs;
}

/// Models with frozen parameters, tied ones, frozen tied ones, and fewer elements than ranks.
std::vector<ParameterSpec> frozen_and_tied() {
    return {{"a", 130, {0, 2}, 0, true},
            {"b", 700, {0}, 0, false},
            {"c", 3, {1}, 0, true},
            {"d", 65, {1, 2}, 0, false},
            {"e", 1, {2}, 0, true}};
}

template <int N, class Partitioner, class... Types>
void check_accounts(Storage storage) {
    for (auto const& specs : {toy_specs(), tiny_gpt(), frozen_and_tied()}) {
        for (int const world : {1, 2, 4}) {
            auto const accounts = account_of<N, Partitioner, Types...>(specs, world, storage);
            for (std::size_t rank = 0; rank < accounts.size(); ++rank) {
                INFO("stage " << N << ", " << specs.front().name << ", world " << world << ", rank "
                              << rank);
                Account const& account = accounts[rank];
                CHECK(account.planned == account.allocated);
                CHECK(account.after_step == account.allocated);
                CHECK(account.left == Bytes{});
                CHECK(account.plan[BufferKind::parameters].is_callers
                      == (storage != Storage::owned));
                CHECK(account.allocated != Bytes{});
            }
        }
    }
}

/// Returns up to eight parameters, some of them frozen or tied, of which the last is neither.
std::vector<ParameterSpec> random_specs(std::uint64_t seed) {
    std::mt19937 random(static_cast<std::uint32_t>(seed));
    std::vector<ParameterSpec> specs;
    for (std::size_t index = random() % 7; index != 0; --index) {
        std::size_t const unit = random() % 3;
        specs.push_back({"p" + std::to_string(index), 1 + random() % 500, {unit}, 0, true});
        if (random() % 3 == 0) {
            specs.back().units.push_back(unit + 1);
        }
        specs.back().trainable = random() % 4 != 0;
    }
    specs.push_back({"last", 1 + random() % 900, {3}, 0, true});
    return specs;
}

using HalfTypes = GradientReduction<void, void, bfloat16>;

/// Returns the model states by the paper's formula, for P elements in shards of equal size.
template <int N>
std::size_t model_states(int world, std::size_t elements) {
    auto const accounts = account_of<N, ContiguousPartitioner, Parameters<bfloat16>, HalfTypes>(
        {{"w", elements, {0}, 0, true}}, world);
    for (Account const& account : accounts) {
        CHECK(account.plan.model_state_bytes() == accounts[0].plan.model_state_bytes());
        CHECK(account.planned == account.allocated);
    }
    return accounts[0].plan.model_state_bytes();
}

} // namespace

TEMPLATE_TEST_CASE_SIG("The plan equals the allocator's account for float parameters", "",
                       ((int N), N), 0, 1, 2, 3) {
    check_accounts<N, ContiguousPartitioner>(Storage::owned);
    check_accounts<N, RoundRobinPartitioner>(Storage::owned);
    check_accounts<N, BalancedPartitioner>(Storage::owned);
    check_accounts<N, ProportionalPartitioner>(Storage::owned);
    check_accounts<N, WholeMatrixPartitioner>(Storage::owned);
    if constexpr (N < 3) {
        check_accounts<N, ContiguousPartitioner>(Storage::adopted);
        check_accounts<N, ContiguousPartitioner>(Storage::scattered);
        check_accounts<N, RoundRobinPartitioner>(Storage::scattered);
        check_accounts<N, WholeGroupPartitioner>(Storage::scattered);
        check_accounts<N, ProportionalPartitioner>(Storage::scattered);
        check_accounts<N, WholeMatrixPartitioner>(Storage::scattered);
        check_accounts<N, DealtGroupPartitioner>(Storage::owned); // has the most leases
    }
}

TEMPLATE_TEST_CASE_SIG("The plan equals the allocator's account for split master weights", "",
                       ((int N), N), 0, 1, 2, 3) {
    check_accounts<N, ContiguousPartitioner, Parameters<bfloat16>, SplitMasterWeights>(
        Storage::owned);
    check_accounts<N, RoundRobinPartitioner, Parameters<bfloat16>, SplitMasterWeights>(
        Storage::owned);
    if constexpr (N < 3) {
        check_accounts<N, ContiguousPartitioner, Parameters<bfloat16>, SplitMasterWeights>(
            Storage::adopted);
        check_accounts<N, ContiguousPartitioner, Parameters<bfloat16>, SplitMasterWeights>(
            Storage::scattered);
    }
}

TEMPLATE_TEST_CASE_SIG(
    "The plan equals the allocator's account for scaled states and bfloat16 states", "",
    ((int N), N), 0, 1, 2, 3) {
    check_accounts<N, ContiguousPartitioner, BlockScaledState<float16>>(Storage::owned);
    check_accounts<N, RoundRobinPartitioner, OptimizerState<bfloat16>>(Storage::owned);
    if constexpr (N < 3) {
        check_accounts<N, ContiguousPartitioner, Parameters<bfloat16>, SplitMasterWeights,
                       BlockScaledState<float16>>(Storage::adopted);
        check_accounts<N, ContiguousPartitioner, BlockScaledState<float16>>(Storage::scattered);
    }
}

TEST_CASE(
    "States in 8 bits and a float master take 6.125 bytes an element, and 4.25 beside a bfloat16 "
    "parameter that is half of its master, instead of 12") {
    constexpr std::size_t elements = 64 * 100;
    std::vector<ParameterSpec> const specs{{"weights", elements, {0}, 0, true}};
    auto const bytes = [&]<class... Types>(std::type_identity<std::tuple<Types...>>) {
        Account const account =
            account_of<0, ContiguousPartitioner, Parameters<bfloat16>, Types...>(specs, 1)[0];
        CHECK(account.planned == account.allocated);
        return static_cast<double>(
                   account.allocated[static_cast<std::size_t>(BufferKind::master_weights)]
                   + account.allocated[static_cast<std::size_t>(BufferKind::optimizer_state)])
               / elements;
    };
    using Eight = BlockScaledState<power8>;
    CHECK(bytes(std::type_identity<std::tuple<Eight>>{}) == 6.125);
    CHECK(bytes(std::type_identity<std::tuple<Eight, SplitMasterWeights>>{}) == 4.25);
    CHECK(bytes(std::type_identity<std::tuple<BlockScaledState<float16>>>{}) == 8.125);
    CHECK(bytes(std::type_identity<std::tuple<OptimizerState<float>>>{}) == 12.0);
}

TEMPLATE_TEST_CASE_SIG("The plan equals the allocator's account for 8-bit states", "", ((int N), N),
                       0, 1, 2, 3) {
    using Eight = BlockScaledState<power8>;
    check_accounts<N, ContiguousPartitioner, Eight>(Storage::owned);
    check_accounts<N, RoundRobinPartitioner, Parameters<bfloat16>, SplitMasterWeights, Eight>(
        Storage::owned);
    if constexpr (N < 3) {
        check_accounts<N, ContiguousPartitioner, Eight>(Storage::adopted);
    }
}

TEMPLATE_TEST_CASE_SIG(
    "The plan equals the allocator's account for bfloat16 parameters, gradients and accumulation",
    "", ((int N), N), 0, 1, 2, 3) {
    check_accounts<N, ContiguousPartitioner, Parameters<bfloat16>, HalfTypes>(Storage::owned);
    check_accounts<N, RoundRobinPartitioner, Parameters<bfloat16>, HalfTypes>(Storage::owned);
    if constexpr (N < 3) {
        check_accounts<N, ContiguousPartitioner, Parameters<bfloat16>, HalfTypes>(Storage::adopted);
        check_accounts<N, ContiguousPartitioner, Parameters<bfloat16>, HalfTypes>(
            Storage::scattered);
    }
}

TEST_CASE(
    "With equal shards the model states are the paper's 16P, 4P + 12P/W, 2P + 14P/W and 16P/W") {
    constexpr std::size_t p = 64 * 4 * 5;
    for (int const world : {1, 2, 4}) {
        auto const w = static_cast<std::size_t>(world);
        CHECK(model_states<0>(world, p) == 16 * p);
        CHECK(model_states<1>(world, p) == 4 * p + 12 * p / w);
        CHECK(model_states<2>(world, p) == 2 * p + 14 * p / w);
        CHECK(model_states<3>(world, p) == 16 * p / w);
    }
    CHECK(model_states<2>(4, 1280) == 7040);
}

TEST_CASE("The bytes of a small model on two ranks equal those worked out by hand") {
    // One bucket of 30 and 100 elements, padded to 64 + 128 and rounded up to 2 * 128 = 256. Rank 0
    // owns b and the first 64 elements of a, rank 1 the other 36.
    std::vector<ParameterSpec> const specs{{"a", 100, {0}, 0, true}, {"b", 30, {1}, 0, true}};
    auto const bytes = [](Account const& account, BufferKind kind) {
        return account.allocated[static_cast<std::size_t>(kind)];
    };
    auto const second = account_of<2, ContiguousPartitioner>(specs, 2);
    for (auto const& account : second) {
        CHECK(bytes(account, BufferKind::parameters) == 256 * 4);
        CHECK(bytes(account, BufferKind::gradients) == 128 * 4);
        CHECK(bytes(account, BufferKind::master_weights) == 0);
        CHECK(bytes(account, BufferKind::optimizer_state) == 128 * 8);
        CHECK(bytes(account, BufferKind::gradient_leases) == 256 * 4);
        CHECK(bytes(account, BufferKind::parameter_leases) == 0);
        CHECK(bytes(account, BufferKind::wire) == 0);
    }
    CHECK(second[0].plan[BufferKind::gradients] == MemoryRow{94 * 4, 34 * 4, false});
    CHECK(second[1].plan[BufferKind::gradients] == MemoryRow{36 * 4, 92 * 4, false});
    // Stage 3: one bucket of 128 elements per unit, and both are in flight at once. bfloat16
    // parameters with float master weights.
    auto const third =
        account_of<3, ContiguousPartitioner, Parameters<bfloat16>, HalfTypes>(specs, 2);
    for (auto const& account : third) {
        CHECK(bytes(account, BufferKind::parameters) == 128 * 2);
        CHECK(bytes(account, BufferKind::gradients) == 128 * 2);
        CHECK(bytes(account, BufferKind::master_weights) == 128 * 4);
        CHECK(bytes(account, BufferKind::optimizer_state) == 128 * 8);
        CHECK(bytes(account, BufferKind::gradient_leases) == 2 * 128 * 2);
        CHECK(bytes(account, BufferKind::parameter_leases) == 2 * 128 * 2);
    }
    CHECK(third[0].plan[BufferKind::parameters] == MemoryRow{94 * 2, 34 * 2, false});
    // Round-robin: rank 0 owns b and rank 1 owns a, each padded to a multiple of 64 elements.
    auto const dealt = account_of<2, RoundRobinPartitioner>(specs, 2);
    CHECK(bytes(dealt[0], BufferKind::optimizer_state) == 64 * 8);
    CHECK(bytes(dealt[1], BufferKind::optimizer_state) == 128 * 8);
}

TEMPLATE_TEST_CASE_SIG("A pool has at most one spare place per bucket, for any number of extra "
                       "leases",
                       "", ((int N), N), 0, 1, 2, 3) {
    using Stage = ZeroStage<N, SizeCappedBucketer>;
    std::size_t const most = std::numeric_limits<std::size_t>::max();
    auto const leases = [](typename Stage::Options options) {
        return on_ranks<std::vector<std::size_t>>(2, [&](LoopbackCommunicator& communicator) {
            HostMemoryResource memory;
            auto chosen = options;
            chosen.bucketer = {.bucket_bytes = 1024};
            chosen.memory = &memory;
            Stage engine(communicator, registration<float>(toy_specs()), chosen);
            auto const& layout = engine.layout();
            std::vector<std::size_t> seen(3); // elements of the trainable buckets, of all
                                              // buckets, of the largest trainable bucket
            for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
                seen[1] += layout.elements(bucket);
                if (bucket < layout.trainable_buckets()) {
                    seen[0] += layout.elements(bucket);
                    seen[2] = std::max(seen[2], layout.elements(bucket));
                }
            }
            for (BufferKind const kind :
                 {BufferKind::gradient_leases, BufferKind::parameter_leases}) {
                seen.push_back(engine.memory_plan()[kind].bytes());
                seen.push_back(memory.allocated_bytes(kind));
            }
            (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), 0).report();
            return seen;
        })[0];
    };
    auto const none = leases({});
    for (std::size_t const extra : {std::size_t{64}, most - 1, most}) {
        INFO(extra << " extra leases");
        auto const rebuild = [&](std::size_t until) {
            return typename Stage::Options{.extra_leases = extra,
                                           .rebuild_buckets = Stage::in_ready_order,
                                           .leases_until_rebuild = until};
        };
        for (auto const& seen :
             {leases({.extra_leases = extra}), leases(rebuild(extra)), leases(rebuild(1))}) {
            CHECK(seen[3] == none[3] + seen[0] * sizeof(float));
            CHECK(seen[4] == seen[3]);
            CHECK(seen[5] == (N == 3 ? none[5] + seen[1] * sizeof(float) : 0));
            CHECK(seen[6] == seen[5]);
        }
    }
    auto const one = leases({.extra_leases = 1});
    CHECK(one[3] == none[3] + none[2] * sizeof(float));
    CHECK(one[4] == one[3]);
}

TEMPLATE_TEST_CASE_SIG("With one micro-step per step nothing is leased where a rank holds all sums "
                       "in the type of the gradients",
                       "", ((int N), N), 0, 1, 2, 3) {
    auto const check = []<class... Types>(bool has_same_type, Storage storage) {
        for (std::uint64_t seed = 0; seed < 6; ++seed) {
            auto const specs = random_specs(seed);
            for (int const world : {1, 2}) {
                INFO("stage " << N << ", world " << world << ", model " << seed);
                auto const usual =
                    account_of<N, ContiguousPartitioner, Types...>(specs, world, storage, 1024);
                auto const promised = account_of<N, ContiguousPartitioner, Types...>(
                    specs, world, storage, 1024, true);
                for (std::size_t rank = 0; rank < promised.size(); ++rank) {
                    Account const& account = promised[rank];
                    CHECK(account.planned == account.allocated);
                    CHECK(account.after_step == account.allocated);
                    CHECK(account.left == Bytes{});
                    Bytes expected = usual[rank].allocated;
                    auto& leases = expected[static_cast<std::size_t>(BufferKind::gradient_leases)];
                    // those of the caller are read where they lie
                    CHECK((leases > 0) == (storage == Storage::owned || N != 2));
                    leases = has_same_type && (N < 2 || world == 1) ? 0 : leases;
                    CHECK(account.allocated == expected);
                }
            }
        }
    };
    check.template operator()<>(true, Storage::owned);
    check.template operator()<Parameters<bfloat16>, HalfTypes>(true, Storage::owned);
    check.template operator()<Parameters<bfloat16>>(false, Storage::owned);
    if constexpr (N < 3) {
        check.template operator()<>(true, Storage::scattered); // with caller-owned gradients
    }
}

TEST_CASE("The plan includes scattered parameters and a float wire for bfloat16 gradients") {
    auto const accounts = account_of<1, ContiguousPartitioner, Parameters<bfloat16>,
                                     GradientReduction<void, float, void>>(
        {{"a", 100, {0}, 0, true}}, 2, Storage::scattered);
    CHECK(accounts[0].plan[BufferKind::parameters] == MemoryRow{200, 0, true});
    CHECK(accounts[0].allocated[static_cast<std::size_t>(BufferKind::parameter_leases)] == 128 * 2);
    CHECK(accounts[0].allocated[static_cast<std::size_t>(BufferKind::wire)] == 128 * 4);
    CHECK(accounts[0].allocated[static_cast<std::size_t>(BufferKind::gradients)] == 128 * 4);
}

} // namespace zero::test::memory_test
