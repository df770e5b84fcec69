#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/stage/live_changes.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

// The cost of rebuilt buckets: memory before, during and after the rebuild, traffic, and what
// happens when memory runs out.

namespace zero::test::rebuild_memory_test {

namespace {

constexpr int world = 3;
std::vector<std::size_t> const order{1, 3, 0, 2, 4};

/// Heap memory that records its peak, and refuses one kind of buffer on demand.
class WatchedMemory final : public MemoryResource {
public:
    void* allocate(std::size_t bytes, BufferKind kind) override {
        if (refused.load() == static_cast<int>(kind)) {
            throw std::bad_alloc();
        }
        void* const memory = _heap.allocate(bytes, kind);
        most = std::max(most.load(), _heap.allocated_bytes());
        return memory;
    }

    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        _heap.deallocate(memory, bytes, kind);
    }

    [[nodiscard]] std::size_t bytes() const noexcept { return _heap.allocated_bytes(); }
    [[nodiscard]] std::size_t bytes(BufferKind kind) const noexcept {
        return _heap.allocated_bytes(kind);
    }

    std::atomic<std::size_t> most{0};
    std::atomic<int> refused{-1};

private:
    HostMemoryResource _heap;
};

struct Account {
    MemoryPlan before, after;
    std::array<std::size_t, buffer_kinds> allocated_before{}, allocated_after{};
    std::size_t construction = 0; ///< temporary memory beyond that of the engine
    std::size_t most = 0, left = 0;
};

template <class Stage>
std::vector<Account> accounts(Storage storage = Storage::owned) {
    using T = typename Stage::ParameterType;
    return on_ranks<Account>(world, [&](LoopbackCommunicator& communicator) {
        auto parameters = registration<T>(toy_specs());
        std::vector<T> block(1041);
        std::size_t begin = 0;
        for (auto& parameter : parameters) {
            if (storage == Storage::scattered) {
                parameter.initialise = nullptr;
                parameter.data = block.data() + begin;
                begin += parameter.elements;
            }
        }
        WatchedMemory memory;
        Account account;
        {
            Stage engine(communicator, parameters,
                         {.storage = storage,
                          .rebuild_buckets = Stage::in_ready_order,
                          .leases_until_rebuild = 5,
                          .bucketer = {.bucket_bytes = 1024},
                          .memory = &memory});
            auto const read = [&](auto& bytes) {
                for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
                    bytes[kind] = memory.bytes(static_cast<BufferKind>(kind));
                }
            };
            account.construction = memory.most - memory.bytes();
            account.before = engine.memory_plan();
            read(account.allocated_before);
            for (std::uint64_t step = 0; step < 2; ++step) {
                memory.most = 0;
                (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step, 2,
                               0.01, 0, order)
                    .report();
                account.most =
                    std::max(account.most, memory.most.load()); // the second step allocates nothing
            }
            account.after = engine.memory_plan();
            read(account.allocated_after);
        }
        account.left = memory.bytes();
        return account;
    });
}

std::size_t engine_bytes(MemoryPlan const& plan, std::vector<BufferKind> const& kinds) {
    std::size_t sum = 0;
    for (BufferKind const kind : kinds) {
        sum += plan[kind].is_callers ? 0 : plan[kind].bytes();
    }
    return sum;
}

/// The peaks given in docs/design/leases_and_gathers.md; the largest parameter has 500 elements.
std::size_t peak(Account const& account, std::size_t parameter_bytes, std::size_t state_bytes) {
    using enum BufferKind;
    std::vector<BufferKind> const held{parameters, parameter_leases};
    std::vector<BufferKind> const states{master_weights, optimizer_state, scratch};
    bool const is_owned = !account.before[parameters].is_callers;
    std::size_t const control_bytes = account.before[control].bytes();
    std::size_t const first =
        control_bytes + account.before[commands].bytes() + engine_bytes(account.before, held)
        + engine_bytes(account.before, states) + engine_bytes(account.after, held)
        + (is_owned ? 500 * parameter_bytes : 0);
    std::size_t const second =
        account.after.engine_bytes() + engine_bytes(account.before, states) + 500 * state_bytes;
    // For each rank: the number of parameters, the hash of the layout, the hashes of the named
    // options (see compared_options.hpp), and whether gradients form a block.
    constexpr std::size_t agreement = world * (2 + 20 + 1) * sizeof(std::uint64_t);
    return std::max({account.before.engine_bytes() + agreement, first, second});
}

template <class Stage>
void check_accounts(std::size_t parameter_bytes, Storage storage = Storage::owned) {
    for (Account const& account : accounts<Stage>(storage)) {
        for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
            INFO(name_of(static_cast<BufferKind>(kind)));
            CHECK(
                account.allocated_before[kind]
                == (account.before.rows[kind].is_callers ? 0 : account.before.rows[kind].bytes()));
            CHECK(account.allocated_after[kind]
                  == (account.after.rows[kind].is_callers ? 0 : account.after.rows[kind].bytes()));
        }
        CHECK(account.after[BufferKind::gradient_leases].bytes()
              < account.before[BufferKind::gradient_leases].bytes());
        // The ranks agree before an engine allocates the rest.
        CHECK(account.construction == 0);
        CHECK(account.most == peak(account, parameter_bytes, 4));
        CHECK(account.left == 0);
    }
}

/// Parameters are added, or removed, before the first step.
template <class Stage>
void check_change(std::size_t parameter_bytes, bool adds) {
    using T = typename Stage::ParameterType;
    auto const accounts = on_ranks<Account>(world, [&](LoopbackCommunicator& communicator) {
        WatchedMemory memory;
        Account account;
        {
            Stage engine(communicator, registration<T>(toy_specs()),
                         {.bucketer = {.bucket_bytes = 1024}, .memory = &memory});
            account.before = engine.memory_plan();
            memory.most = 0;
            if (adds) {
                add_parameters(engine, registration<T>({{"new.weight", 400, {1}, 0, true},
                                                        {"new.table", 33, {2}, 0, false}}));
            } else {
                remove_parameters(engine, {"second.weight", "first.bias", "second.table"});
            }
            account.most = memory.most;
            account.after = engine.memory_plan();
            for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
                account.allocated_after[kind] = memory.bytes(static_cast<BufferKind>(kind));
            }
        }
        account.left = memory.bytes();
        return account;
    });
    for (Account const& account : accounts) {
        for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
            INFO(name_of(static_cast<BufferKind>(kind)));
            auto const& row = account.after.rows[kind];
            CHECK(account.allocated_after[kind] == (row.is_callers ? 0 : row.bytes()));
        }
        CHECK((account.after.engine_bytes() > account.before.engine_bytes()) == adds);
        CHECK(account.most == peak(account, parameter_bytes, 4));
        CHECK(account.left == 0);
    }
}

} // namespace

TEST_CASE("Memory equals the plan after parameters were added or removed, and the documented peak "
          "before",
          "[stage][rebuild]") {
    in_every_stage([]<int N>() {
        for (bool const adds : {true, false}) {
            check_change<ZeroStage<N, SizeCappedBucketer>>(4, adds);
            check_change<
                ZeroStage<N, SizeCappedBucketer, BalancedPartitioner, Parameters<bfloat16>>>(2,
                                                                                             adds);
        }
    });
}

TEST_CASE("Memory equals the plan before and after a rebuild, and the documented peak in between",
          "[stage][rebuild]") {
    in_every_stage([]<int N>() {
        check_accounts<ZeroStage<N, SizeCappedBucketer>>(4);
        check_accounts<ZeroStage<N, SizeCappedBucketer, BalancedPartitioner, Parameters<bfloat16>>>(
            2);
        if constexpr (N < 3) {
            check_accounts<ZeroStage<N, SizeCappedBucketer>>(4, Storage::scattered);
        }
    });
}

TEST_CASE("Steps after a rebuild move what the formula says for the new layout",
          "[stage][rebuild]") {
    struct Counts {
        Traffic transport, formula;
    };
    auto const ranks = on_ranks<Counts>(world, [](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        using Stage = ZeroStage<2, BalancedPartitioner>;
        Stage engine(communicator, registration<float>(toy_specs()),
                     {.rebuild_buckets = Stage::in_ready_order,
                      .leases_until_rebuild = 5,
                      .bucketer = {.bucket_bytes = 1200}});
        std::uint64_t const hash = engine.layout().hash();
        (void)run_step(engine, rank, 0, 1, 0.01, 0, order).report();
        communicator.reset_traffic();
        (void)run_step(engine, rank, 1, 1, 0.01, 0, order).report();
        auto const& traffic = communicator.traffic();
        Counts counts;
        counts.transport = {traffic[CollectiveKind::reduce_scatter].elements,
                            traffic[CollectiveKind::all_gather].elements,
                            hash == engine.layout().hash() ? 1U : 0U};
        counts.formula = step_traffic_of_rank(engine.layout(), rank, 2,
                                              ReductionSchedule::every_micro_step, 1, {});
        return counts;
    });
    for (Counts const& rank : ranks) {
        CHECK(rank.transport == rank.formula);
    }
}

TEST_CASE("When a rank has no memory for the rebuild its engine breaks, and the others get Aborted",
          "[stage][rebuild]") {
    for (BufferKind const kind :
         {BufferKind::parameters, BufferKind::gradient_leases, BufferKind::optimizer_state}) {
        INFO(name_of(kind));
        std::array<WatchedMemory, world> memories;
        std::array<Outcome, world> next;
        auto const outcomes = run_and_observe(world, [&](LoopbackCommunicator& communicator) {
            auto const rank = static_cast<std::size_t>(communicator.rank());
            using Stage = ZeroStage<2>;
            Stage engine(communicator, registration<float>(toy_specs()),
                         {.rebuild_buckets = Stage::in_ready_order, .memory = &memories[rank]});
            memories[rank].refused = rank == 1 ? static_cast<int>(kind) : -1;
            try {
                (void)run_step(engine, rank, 0);
            } catch (...) {
                next[rank] = outcome_of([&] { engine.begin_step(); });
                std::size_t slices = 0;
                engine.for_each_owned_slice([&](auto const&) { ++slices; }); // is still allowed
                throw;
            }
        });
        CHECK(outcomes.ranks[1].type == "other");
        CHECK(outcomes.ranks[0].type == "Aborted");
        CHECK_THAT(outcomes.ranks[0].message, contains_text("bad_alloc"));
        for (std::size_t rank = 0; rank < world; ++rank) {
            CHECK(next[rank].type == "BrokenEngine");
            CHECK(memories[rank].bytes() == 0);
        }
    }
}

} // namespace zero::test::rebuild_memory_test
