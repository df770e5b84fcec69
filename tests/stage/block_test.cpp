#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"

#include <zero/ops/sgd.hpp>
#include <zero/stage/describe.hpp>
#include <zero/stage/register_block.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

// Trainers with one block and a list of sizes; all parameters into one block; names of handles.

namespace zero::test::block_test {

namespace {

constexpr std::array<std::size_t, 3> sizes{5, 0, 7};
constexpr std::array<char const*, 3> names{"first", "empty", "second"};
constexpr std::size_t total = 12;

} // namespace

TEST_CASE("A block with a list of sizes is registered parameter by parameter, and trained") {
    auto const blocks = on_ranks<std::vector<float>>(2, [](LoopbackCommunicator& communicator) {
        using Zero = ZeroStage<1, Sgd>;
        std::vector<float> block(total), gradients(total);
        std::iota(block.begin(), block.end(), 1.0F);
        auto const parameters = register_block(block.data(), gradients.data(), sizes, names);
        Zero engine(
            communicator, parameters,
            {.storage = Storage::adopted, .adopted_block = block, .optimizer = {.momentum = 0.0}});
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        Zero::Gradients const handle = engine.gradients(0);
        gradients.assign(total, 2.0F);
        engine.gradients_ready(0);
        engine.end_micro_step();
        Zero::Ticket const ticket = engine.step(0.5);
        ticket.wait();
        std::vector<float> gathered(total);
        engine.gather_to(gathered);
        std::vector<float> all = gathered;
        all.push_back(gathered == block ? 1.0F : 0.0F);
        return all;
    });
    std::vector<float> expected(total);
    std::iota(expected.begin(), expected.end(), 0.0F); // 1, 2, ... minus 0.5 * 2
    expected.push_back(1.0F);
    CHECK(blocks[0] == expected);
    CHECK(blocks[1] == expected);
}

TEST_CASE("A registered block has the caller's names, addresses and sizes") {
    std::vector<float> block(total), gradients(total);
    auto const with = register_block(block.data(), gradients.data(), sizes,
                                     std::vector<std::string>{"a", "b", "c"});
    CHECK(with[2].name == "c");
    CHECK(with[2].data == block.data() + 5);
    CHECK(with[2].gradient == gradients.data() + 5);
    CHECK(with[2].elements == 7);
    auto const without = register_block<float, float>(block.data(), nullptr, sizes, names);
    CHECK(without[0].gradient == nullptr);
    CHECK_THROWS_WITH(
        register_block(block.data(), gradients.data(), sizes, std::vector<std::string>{"a"}),
        contains_text("register_block() got 3 sizes and 1 names"));
}

TEST_CASE("A description tells elements of an adopted block that lie in no parameter, in stages 0 "
          "to 2") {
    auto const described = []<int N>(std::array<std::size_t, 3> const& registered,
                                     std::size_t begin) {
        return on_ranks<std::string>(2, [&](LoopbackCommunicator& communicator) {
            std::vector<float> block(total);
            auto const parameters =
                register_block(block.data() + begin, nullptr, registered, names);
            ZeroStage<N, Sgd> const engine(communicator, parameters,
                                           {.storage = Storage::adopted, .adopted_block = block});
            std::string const text = describe(engine);
            return text.substr(std::min(text.find('\n'), text.size()));
        })[0];
    };
    std::string const empty = "\nnot used in this stage: 1 parameter without elements ('empty')";
    auto const line = [&](std::string const& count, std::string const& first) {
        return empty + "\nnot used in this stage: " + count
               + " of the 12 elements of adopted_block (they lie in no parameter; the first is "
                 "element "
               + first + ")";
    };
    auto const check = [&]<int N>() {
        CHECK(described.template operator()<N>(sizes, 0) == empty);
        CHECK(described.template operator()<N>({5, 0, 6}, 0) == line("1", "11"));
        CHECK(described.template operator()<N>({4, 0, 7}, 0) == line("1", "11"));
        CHECK(described.template operator()<N>({4, 0, 6}, 1) == line("2", "0"));
    };
    check.operator()<0>();
    check.operator()<1>();
    check.operator()<2>();
}

TEST_CASE("All parameters are gathered into one block, on the ranks that give one") {
    in_every_stage([]<int N>() {
        using Zero = ZeroStage<N, Sgd>;
        auto const ranks =
            on_ranks<std::vector<std::string>>(2, [](LoopbackCommunicator& communicator) {
                std::vector<Parameter<float>> parameters(3);
                for (std::size_t index = 0; index < 3; ++index) {
                    parameters[index].name = names[index];
                    parameters[index].elements = sizes[index];
                    parameters[index].units = {2 - index}; // not the order of registration
                    parameters[index].initialise = [index](std::size_t begin,
                                                           std::span<float> values) {
                        std::iota(values.begin(), values.end(),
                                  static_cast<float>(100 * index + begin));
                    };
                }
                Zero engine(communicator, parameters);
                std::vector<float> block(communicator.rank() == 0 ? total : 0, -1.0F);
                engine.gather_to(block);
                std::string text;
                for (float const value : block) {
                    text += std::to_string(static_cast<int>(value)) + " ";
                }
                std::vector<float> wrong(total - 1);
                return std::vector<std::string>{
                    text, outcome_of([&] { engine.gather_to(wrong); }).message};
            });
        CHECK(ranks[0][0] == "0 1 2 3 4 200 201 202 203 204 205 206 ");
        CHECK(ranks[1][0].empty());
        CHECK_THAT(ranks[1][1],
                   contains_text("gather_to() got a block of 11 elements for 12 (rank 1)"));
    });
}

TEST_CASE("A stage names its handles, tickets and slices") {
    using Zero = ZeroStage<3, Sgd>;
    static_assert(std::is_same_v<Zero::Weights, Weights<Zero::EngineType>>);
    auto const counts = on_ranks<std::size_t>(2, [](LoopbackCommunicator& communicator) {
        Zero engine(communicator, {{.name = "w", .elements = 300}});
        Zero::Weights const weights = engine.acquire(0);
        std::size_t count = 0;
        engine.for_each_owned_slice(
            [&](Zero::OwnedSlice const& slice) { count += slice.values.size(); });
        return count + weights[0].size();
    });
    CHECK(counts[0] + counts[1] == 900);
}

TEST_CASE("A ticket can be waited for after its report was overwritten") {
    auto const outcomes = on_ranks<Outcome>(2, [](LoopbackCommunicator& communicator) {
        using Zero = ZeroStage<2, Sgd>;
        Zero engine(communicator, {{.name = "w", .elements = 3}});
        std::vector<Zero::Ticket> tickets;
        for (int step = 0; step < 18; ++step) {
            engine.begin_step();
            engine.begin_micro_step(MicroStep::last);
            engine.gradients(0)[0][0] = 1.0F;
            engine.end_micro_step();
            tickets.push_back(engine.step(0.1));
        }
        tickets.front().wait();
        return outcome_of([&] { (void)tickets.front().report(); });
    });
    CHECK(outcomes[0].type == "OutOfOrder");
}

} // namespace zero::test::block_test
