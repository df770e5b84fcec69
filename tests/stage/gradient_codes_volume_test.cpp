#include "gradient_codes_model.hpp"
#include "support/account.hpp"
#include "support/catch.hpp"
#include "support/filled_memory.hpp"

#include <zero/comm/recording.hpp>
#include <zero/comm/timed.hpp>
#include <zero/core/timeline.hpp>
#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/layout/wire_chunk.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

// What gradients in codes cost, by the transport's own count, by the recorder's and by the cost
// model, and what an engine allocates for them.

namespace zero::test::gradient_codes_volume_test {

namespace {

using namespace gradient_codes;

constexpr std::size_t elements = 3840;

struct Volume {
    std::uint64_t read = 0;    ///< bytes of exchanges in a step that this rank read
    std::uint64_t payload = 0; ///< bytes of exchanges, by the recorder
    std::uint64_t calls = 0;
    std::uint64_t reduced = 0; ///< bytes of reduce-scatters
    CommunicationTerm predicted{};
};

template <class Stage>
std::vector<Volume> volumes(int world, std::vector<ParameterSpec> const& specs,
                            std::size_t block_bytes, ReductionSchedule schedule,
                            std::size_t wire_bytes = std::size_t{25} << 20U) {
    using Counted = Recording<LoopbackCommunicator>;
    using Types = typename detail::config_of_t<Stage>::template TypesAt<0>;
    return on_ranks<Volume>(world, [&](LoopbackCommunicator& all) {
        Counted counted(all);
        auto const rank = static_cast<std::size_t>(all.rank());
        Stage engine(counted, registration<bfloat16>(specs),
                     {.reduction = {.schedule = schedule, .wire_bytes = wire_bytes}});
        write_gradients(engine, rank, 0, 2);
        (void)engine.step(0.01).report();
        all.reset_traffic();
        counted.reset_recorded();
        write_gradients(engine, rank, 1, 2);
        (void)engine.step(0.01).report();
        std::size_t const wire_elements = detail::has_wire<Types>(schedule) ? wire_bytes / 2 : 0;
        auto const step =
            count_step_communication(engine.layout(), rank, Stage::stage, schedule, 2, {},
                                     {.sizes = {.parameter = 2, .communication = 2},
                                      .wire_elements = wire_elements,
                                      .gradient_block_bytes = block_bytes,
                                      .gradient_wire_bytes = wire_bytes});
        auto const& exchanges = counted.recorded()[CollectiveKind::exchange];
        return Volume{all.traffic()[CollectiveKind::exchange].bytes, exchanges.bytes,
                      exchanges.calls, all.traffic()[CollectiveKind::reduce_scatter].bytes,
                      step.reductions};
    });
}

template <int N, class C>
using Coded = ZeroStage<N, Parameters<bfloat16>, Wire<Plain, C>, Recording<LoopbackCommunicator>>;

template <int N, class C>
void check_volume() {
    for (int const world : {2, 3, 5}) {
        for (auto const schedule :
             {ReductionSchedule::boundary, ReductionSchedule::every_micro_step}) {
            CAPTURE(world, N, name_of(schedule));
            auto const w = static_cast<std::uint64_t>(world);
            std::uint64_t const passes = schedule == ReductionSchedule::boundary ? 1 : 2;
            std::uint64_t const bytes = elements / 64 * C::bytes_per_block;
            for (Volume const& own :
                 volumes<Coded<N, C>>(world, even_specs(elements), C::bytes_per_block, schedule)) {
                CHECK(own.read == passes * bytes * (w - 1) / w);
                CHECK(own.payload == passes * bytes);
                CHECK(own.reduced == 0);
                CHECK(own.predicted.bytes == own.read);
                CHECK(own.predicted.calls == own.calls);
            }
        }
    }
}

} // namespace

TEST_CASE("A reduced element takes 66/64 bytes in 8 bits and 34/64 in 4") {
    check_volume<1, Int8Blocks>();
    check_volume<2, Int4Blocks>();
    check_volume<3, Int8Blocks>();
    auto const schedule = ReductionSchedule::boundary;
    CHECK((volumes<Coded<2, Int8Blocks>>(2, even_specs(elements), 66, schedule)[0].read) == 1980);
    CHECK((volumes<Coded<3, Int4Blocks>>(2, even_specs(elements), 34, schedule)[1].read) == 1020);
    using Bare = ZeroStage<2, Parameters<bfloat16>, Recording<LoopbackCommunicator>>;
    auto const plain = volumes<Bare>(2, even_specs(elements), 0, schedule);
    CHECK(plain[0].read == 0);
    CHECK(plain[0].reduced == 3840); // half of 3840 elements of two bytes
    CHECK(plain[0].predicted.bytes == plain[0].reduced);
}

TEST_CASE("Extents that differ, and chunks, are counted by the cost model as they are sent") {
    using Uneven = ZeroStage<3, Parameters<bfloat16>, Wire<Plain, Int4Blocks>, BalancedPartitioner,
                             Recording<LoopbackCommunicator>>;
    for (std::size_t const wire_bytes : {0U, 300U, 1U << 20U}) {
        CAPTURE(wire_bytes);
        auto const every = ReductionSchedule::every_micro_step;
        for (auto const& all :
             {volumes<Uneven>(5, toy_specs(), 34, every, wire_bytes),
              volumes<Coded<2, Int4Blocks>>(3, toy_specs(), 34, every, wire_bytes)}) {
            for (Volume const& own : all) {
                CHECK(own.predicted.bytes == own.read);
                CHECK(own.predicted.calls == own.calls);
            }
        }
    }
}

TEST_CASE("A chunk of an exchange leaves room for the pieces of all ranks") {
    Cuts const even = Cuts::even(4, 256);
    CHECK(exchange_stride(even, 1024) == 256);
    CHECK(exchange_chunks(even, 1024) == 1);
    CHECK(exchange_stride(even, 1023) == 192); // 255 elements per rank
    CHECK(exchange_chunks(even, 1023) == 2);
    CHECK(exchange_stride(even, 0) == 64);
    static constexpr std::array<std::size_t, 4> uneven_list{0, 0, 320, 384};
    constexpr Cuts uneven{uneven_list};
    STATIC_REQUIRE(exchange_chunks(uneven, 3 * 320) == 1); // and no cut behind the last is read
    CHECK(exchange_stride(uneven, 384) == 128); // the bucket would fit, three pieces of 320 not
    CHECK(exchange_chunks(uneven, 384) == 3);
    CHECK(exchange_chunks(Cuts::even(3, 0), 384) == 0);
    CHECK(coded_capacity(680, 34) == 1280);
    CHECK(coded_capacity(33, 34) == 0);
}

namespace {

/// Compares the plan with what is allocated. @return a row on rank 0
template <class Stage>
std::size_t check_memory(typename Stage::Options const& given = {},
                         BufferKind kind_of_row = BufferKind::wire) {
    return check_accounts(on_ranks<Account>(
        3,
        [&](LoopbackCommunicator& all) {
            HostMemoryResource memory;
            auto options = given;
            options.memory = &memory;
            Stage engine(all, registration<typename Stage::ParameterType>(toy_specs()), options);
            return account_of(engine, memory, [&] {
                write_gradients(engine, static_cast<std::uint64_t>(all.rank()), 0, 2);
                (void)engine.step(0.01).report();
            });
        }))[kind_of_row]
        .bytes();
}

} // namespace

TEST_CASE("The plan is what is allocated, with the codes of the largest bucket twice") {
    using B = Parameters<bfloat16>;
    // stage 3: the unit of 500 and 7 elements, in three extents of 192
    CHECK((check_memory<ZeroStage<3, B, Wire<Plain, Int8Blocks>>>()) == 2 * 9 * 66);
    CHECK((check_memory<ZeroStage<3, B, Wire<Int8Blocks, Int4Blocks>>>()) == 2 * 9 * 34);
    CHECK((check_memory<ZeroStage<3, B>>()) == 0);
    CHECK(
        (check_memory<ZeroStage<1, B, Wire<Plain, Int8Blocks>>>({.reduction = {.wire_bytes = 500}}))
        == 2 * 6 * 66); // 448 elements in three parts of 128
    CHECK((check_memory<ZeroStage<2, B, Wire<Plain, Int8Blocks>, BalancedPartitioner>>(
              {.reduction = {.wire_bytes = 500}}))
          <= 1000);
}

TEST_CASE("Errors of the whole model are planned and allocated on every rank") {
    auto const errors = BufferKind::gradient_errors;
    using B = Parameters<bfloat16>;
    // each rank encodes 1003 elements, padded in five units of stage 3 to 320, 576, 192, 192 and
    // nothing more than the tied first unit holds
    std::size_t const floats =
        check_memory<ZeroStage<3, B, Wire<Plain, Int8Blocks, ErrorFeedback<float>>>>({}, errors);
    std::size_t const codes =
        check_memory<ZeroStage<3, B, Wire<Plain, Int8Blocks, ErrorFeedback<Int8Blocks>>>>({},
                                                                                          errors);
    CHECK(floats % (3 * 256) == 0); // three equal extents of blocks in each bucket
    CHECK(floats >= 1001 * sizeof(float));
    CHECK(codes * 256 == floats * 66);
    CHECK((check_memory<ZeroStage<2, B, Wire<Plain, Int8Blocks>>>({}, errors)) == 0);
}

TEST_CASE("What pads a bucket of gradients is sent as zeros, whatever the memory held") {
    // one parameter of 70 elements on three ranks: the third block holds padding only
    std::vector<ParameterSpec> const specs{{"only", 70, {0}, 0, true}};
    auto const right = on_ranks<int>(3, [&](LoopbackCommunicator& all) {
        FilledMemory memory(BufferKind::wire);
        ZeroStage<2, Parameters<bfloat16>, Wire<Plain, Int8Blocks>> engine(
            all, registration<bfloat16>(specs), {.poison = true, .memory = &memory});
        write_gradients(engine, static_cast<std::uint64_t>(all.rank()), 0, 1);
        (void)engine.step(0.01).report();
        bool is_right = memory.codes.size() == 6 * 66;
        for (std::size_t i = 2 * 66; i < 3 * 66; ++i) {
            is_right = is_right && memory.codes[i] == 0;
        }
        for (std::size_t i = 66 + 6; i < 66 + 64; ++i) { // behind the end of the parameter
            is_right = is_right && memory.codes[i] == 0;
        }
        return is_right && memory.codes[66] != 0xa5 ? 1 : 0;
    });
    CHECK(right == std::vector<int>(3, 1));
}

TEST_CASE("A timeline shows when gradients were encoded, decoded and added") {
    auto const counts = on_ranks<std::array<std::size_t, 2>>(2, [](LoopbackCommunicator& all) {
        Timeline timeline(all.rank());
        Timed<LoopbackCommunicator> timed(all, &timeline);
        ZeroStage<3, Parameters<bfloat16>, Wire<Plain, Int8Blocks>, Timed<LoopbackCommunicator>>
            engine(timed, registration<bfloat16>(even_specs(elements)));
        write_gradients(engine, static_cast<std::uint64_t>(all.rank()), 0, 1);
        (void)engine.step(0.01).report();
        std::array<std::size_t, 2> found{};
        for (std::size_t position = 0; position < timeline.size(); ++position) {
            std::string_view const what = timeline[position].what.data();
            found[0] += what == "encode gradients" ? 1 : 0;
            found[1] += what == "decode and add" ? 1 : 0;
        }
        return found;
    });
    CHECK(counts[0] == std::array<std::size_t, 2>{2, 2});
    CHECK(counts[1] == std::array<std::size_t, 2>{2, 2});
}

} // namespace zero::test::gradient_codes_volume_test
