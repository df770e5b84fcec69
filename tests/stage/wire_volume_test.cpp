#include "support/account.hpp"
#include "support/catch.hpp"
#include "support/filled_memory.hpp"
#include "wire_model.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/recording.hpp>
#include <zero/comm/secondary.hpp>
#include <zero/comm/timed.hpp>
#include <zero/core/timeline.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

// What travels in codes, by the transport's own count, by the recorder's and by the cost model, and
// what an engine allocates.

namespace zero::test::wire_volume_test {

namespace {

using namespace wire_model;

/// Divided evenly by every number of ranks used here.
constexpr std::size_t elements = 2 * 64 * 30;

struct Volume {
    std::uint64_t read = 0;    ///< bytes of all-gathers in a step that this rank read
    std::uint64_t payload = 0; ///< bytes of all-gathers, by the recorder
    std::uint64_t reduced = 0; ///< bytes of reduce-scatters
    std::uint64_t predicted = 0;
    std::uint64_t calls = 0;
};

template <int N, class W>
std::vector<Volume> volumes(int world, std::vector<ParameterSpec> const& specs,
                            std::size_t block_bytes) {
    using Counted = Recording<LoopbackCommunicator>;
    return on_ranks<Volume>(world, [&](LoopbackCommunicator& all) {
        Counted counted(all);
        auto const rank = static_cast<std::size_t>(all.rank());
        ZeroStage<N, Parameters<bfloat16>, W, Counted> engine(counted,
                                                              registration<bfloat16>(specs));
        (void)step_of(engine, rank, 0).report();
        all.reset_traffic();
        counted.reset_recorded();
        (void)step_of(engine, rank, 1).report();
        std::vector<std::size_t> units;
        for (std::size_t pass = 0; N == 3 && pass < 4; ++pass) {
            for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
                units.push_back(pass % 2 == 0 ? unit : engine.layout().units() - 1 - unit);
            }
        }
        auto const step = count_step_communication(
            engine.layout(), rank, N, engine.schedule(), 2, units,
            {.sizes = {.parameter = 2}, .weight_block_bytes = block_bytes});
        auto const& gathers = counted.recorded()[CollectiveKind::all_gather];
        return Volume{all.traffic()[CollectiveKind::all_gather].bytes, gathers.bytes,
                      all.traffic()[CollectiveKind::reduce_scatter].bytes,
                      step.gathers.bytes + step.publishes.bytes, gathers.calls};
    });
}

template <int N, class C>
void check_volume(std::uint64_t passes) {
    for (int const world : {2, 3, 5}) {
        CAPTURE(world, N);
        auto const w = static_cast<std::uint64_t>(world);
        std::uint64_t const bytes = elements / 64 * C::bytes_per_block;
        auto const plain = volumes<N, Wire<>>(world, even_specs(elements), 0);
        auto const coded = volumes<N, Wire<C>>(world, even_specs(elements), C::bytes_per_block);
        for (std::size_t rank = 0; rank < coded.size(); ++rank) {
            CHECK(coded[rank].read == passes * bytes * (w - 1) / w);
            CHECK(coded[rank].payload == passes * bytes);
            CHECK(coded[rank].predicted == coded[rank].read);
            CHECK(plain[rank].read == passes * elements * 2 * (w - 1) / w);
            CHECK(plain[rank].predicted == plain[rank].read);
            CHECK(coded[rank].reduced == plain[rank].reduced);
            CHECK(coded[rank].calls == plain[rank].calls);
        }
    }
}

} // namespace

TEST_CASE("An element takes 66/64 bytes in 8 bits and 34/64 in 4, in gathers and publications") {
    // stage 3 gathers in the forward and the backward pass; the last unit stays gathered
    check_volume<1, Int8Blocks>(1);
    check_volume<2, Int8Blocks>(1);
    check_volume<2, Int4Blocks>(1);
    auto const literal = volumes<2, Wire<Int8Blocks>>(2, even_specs(elements), 66);
    CHECK(literal[0].read == 1980); // half of 3840 elements: 30 blocks of 66 bytes
    CHECK((volumes<2, Wire<Int4Blocks>>(2, even_specs(elements), 34)[1].read) == 1020);
    CHECK((volumes<2, Wire<>>(2, even_specs(elements), 0)[0].read) == 3840);
}

TEST_CASE("In stage 3 every gather of trainable units is in codes, and frozen ones are as they "
          "are") {
    for (int const world : {2, 3}) {
        auto const coded = volumes<3, Wire<Int8Blocks>>(world, toy_specs(), 66);
        auto const plain = volumes<3, Wire<>>(world, toy_specs(), 0);
        for (std::size_t rank = 0; rank < coded.size(); ++rank) {
            CHECK(coded[rank].predicted == coded[rank].read);
            CHECK(plain[rank].predicted == plain[rank].read);
            CHECK(coded[rank].calls == plain[rank].calls);
            CHECK(coded[rank].read < plain[rank].read * 6 / 10);
        }
        auto const even = volumes<3, Wire<Int4Blocks>>(world, even_specs(elements), 34);
        auto const whole = volumes<3, Wire<>>(world, even_specs(elements), 0);
        CHECK(even[0].read * 128 == whole[0].read * 34);
    }
}

TEST_CASE("Secondary copies hold what was decoded, in the parameter type") {
    using Hosts = Groups<LoopbackCommunicator, Secondary>;
    std::vector<std::array<std::uint64_t, 4>> counts(4);
    run_ranks<Hosts>(4, test_time_out, {.secondary = 2}, [&](Hosts& hosts) {
        auto const rank = static_cast<std::size_t>(hosts.rank());
        ZeroStage<3, Parameters<bfloat16>, Wire<Int8Blocks>, Hosts> engine(
            hosts, registration<bfloat16>(even_specs(3072)));
        (void)step_of(engine, rank, 0).report();
        hosts.everyone().reset_traffic();
        hosts.secondary().reset_traffic();
        (void)step_of(engine, rank, 1).report();
        std::vector<std::size_t> const units{0, 1, 1, 0, 0, 1, 1, 0};
        auto const step = count_step_communication(
            engine.layout(), rank, 3, engine.schedule(), 2, units,
            {.sizes = {.parameter = 2}, .secondary_ranks = 2, .weight_block_bytes = 66});
        counts[rank] = {hosts.everyone().traffic()[CollectiveKind::all_gather].bytes,
                        hosts.secondary().traffic()[CollectiveKind::all_gather].bytes,
                        step.gathers.bytes, step.secondary.bytes};
    });
    for (auto const& [everyone, inside, gathers, copies] : counts) {
        CHECK(everyone == 3072 / 64 * 66 * 3 / 4);
        CHECK(gathers == everyone);
        CHECK(inside == 3 * 3072 * 2 / 2); // bfloat16 values, in three of four passes
        CHECK(copies == inside);
    }
}

namespace {

/// Compares the plan with what is allocated. @return the row of codes on rank 0
template <class Stage>
std::size_t check_memory(typename Stage::Options const& given = {}) {
    return check_accounts(on_ranks<Account>(
        3,
        [&](LoopbackCommunicator& all) {
            HostMemoryResource memory;
            auto options = given;
            options.memory = &memory;
            auto parameters = registration<typename Stage::ParameterType>(toy_specs());
            auto const callers = provide_memory(parameters, options);
            Stage engine(all, parameters, options);
            return account_of(engine, memory, [&] {
                (void)step_of(engine, static_cast<std::uint64_t>(all.rank()), 0).report();
            });
        }))[BufferKind::weight_codes]
        .bytes();
}

} // namespace

TEST_CASE("The plan is what is allocated, with a row for the codes of the largest bucket") {
    using B = Parameters<bfloat16>;
    // stage 3: the unit of 500 and 7 elements, in three extents of 192
    CHECK((check_memory<ZeroStage<3, B, Wire<Int8Blocks>>>()) == 9 * 66);
    CHECK((check_memory<ZeroStage<3, B, Wire<Int4Blocks>>>()) == 9 * 34);
    CHECK((check_memory<ZeroStage<3, B>>()) == 0);
    auto const all = check_memory<ZeroStage<2, B, Wire<Int8Blocks>>>();
    CHECK(all > 9 * 66); // one bucket of all trainable parameters
    CHECK(all % (3 * 66) == 0);
    CHECK((check_memory<ZeroStage<1, B, Wire<Int8Blocks>>>({.storage = Storage::scattered}))
          == all);
    CHECK((check_memory<ZeroStage<2, B, Wire<Int8Blocks>>>({.bucketer = {.bucket_bytes = 256}}))
          < all);
}

TEST_CASE("What pads a bucket is sent as zeros, whatever the memory held") {
    // one parameter of 70 elements on three ranks: the third block holds padding only
    std::vector<ParameterSpec> const specs{{"only", 70, {0}, 0, true}};
    auto const right = on_ranks<int>(3, [&](LoopbackCommunicator& all) {
        FilledMemory memory(BufferKind::weight_codes);
        ZeroStage<3, Parameters<bfloat16>, Wire<Int8Blocks>> engine(
            all, registration<bfloat16>(specs), {.memory = &memory});
        (void)step_of(engine, static_cast<std::uint64_t>(all.rank()), 0).report();
        bool is_right = memory.codes.size() == 3 * 66;
        for (std::size_t i = 2 * 66; i < memory.codes.size(); ++i) {
            is_right = is_right && memory.codes[i] == 0;
        }
        for (std::size_t i = 66 + 6; i < 66 + 64; ++i) { // behind the end of the parameter
            is_right = is_right && memory.codes[i] == 0;
        }
        return is_right && memory.codes[66] != 0xa5 ? 1 : 0;
    });
    CHECK(right == std::vector<int>(3, 1));
}

TEST_CASE("A timeline shows when weights were encoded and decoded") {
    auto const counts = on_ranks<std::array<std::size_t, 2>>(2, [](LoopbackCommunicator& all) {
        Timeline timeline(all.rank());
        Timed<LoopbackCommunicator> timed(all, &timeline);
        ZeroStage<3, Parameters<bfloat16>, Wire<Int8Blocks>, Timed<LoopbackCommunicator>> engine(
            timed, registration<bfloat16>(even_specs(elements)));
        (void)step_of(engine, static_cast<std::uint64_t>(all.rank()), 0).report();
        std::array<std::size_t, 2> found{};
        for (std::size_t position = 0; position < timeline.size(); ++position) {
            std::string_view const what = timeline[position].what.data();
            found[0] += what == "encode" ? 1 : 0;
            found[1] += what == "decode" ? 1 : 0;
        }
        return found;
    });
    for (auto const& [encodings, decodings] : counts) {
        CHECK(encodings >= 4);
        CHECK(encodings == decodings);
    }
}

} // namespace zero::test::wire_volume_test
