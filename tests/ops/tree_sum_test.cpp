// The tree of micro-batches: what each number of ranks adds is the same tree.

#include "support/catch.hpp"

#include <zero/ops/tree_sum.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace zero::test::tree_sum_test {

namespace {

using Names = std::vector<std::string>;

/// The node above the groups [begin, end), by the definition: halves at the largest power of two.
std::string node(Names const& leaves) {
    if (leaves.size() == 1) {
        return leaves[0];
    }
    std::size_t left = 1;
    while (2 * left < leaves.size()) {
        left *= 2;
    }
    auto const middle = leaves.begin() + static_cast<std::ptrdiff_t>(left);
    return "(" + node({leaves.begin(), middle}) + "+" + node({middle, leaves.end()}) + ")";
}

/// The tree of all micro-batches, straight from its definition.
std::string tree(std::size_t micro_batches, std::size_t group) {
    Names groups;
    for (std::size_t begin = 0; begin < micro_batches; begin += group) {
        Names numbers;
        for (std::size_t number = begin; number < begin + group; ++number) {
            numbers.push_back(std::to_string(number));
        }
        groups.push_back(node(numbers));
    }
    return node(groups);
}

/// Adds leaves as `TreeWalk` says, and returns the most sums that were held between two.
std::pair<std::string, std::size_t> walked(Names const& leaves, std::size_t group) {
    ops::TreeWalk walk(leaves.size(), group);
    Names held;
    std::size_t most = 0;
    for (std::size_t index = 0; index < leaves.size(); ++index) {
        most = index == 0 ? 0 : std::max(most, held.size());
        CHECK(walk.held() == held.size());
        CHECK(ops::TreeWalk(leaves.size(), group, index).held() == held.size());
        std::string sum = leaves[index];
        for (std::size_t added = walk.next(); added != 0; --added) {
            sum = "(" + held.back() + "+" + sum + ")";
            held.pop_back();
        }
        held.push_back(sum);
    }
    CHECK(held.size() == 1);
    return {held[0], most};
}

} // namespace

TEST_CASE(
    "Every admissible number of ranks adds the same tree, and holds as many sums as planned") {
    std::size_t cases = 0;
    std::size_t fewer = 0; // trees for which a plan of floor(log2(n)) per level is not reached
    for (std::size_t group = 1; group <= 7; ++group) {
        for (std::size_t all = group; all < 97; all += group) {
            std::string const expected = tree(all, group);
            for (std::size_t world = 1; world <= all; ++world) {
                ops::MicroBatchTree const shape{all, group, world};
                if (!shape.is_admissible()) {
                    continue;
                }
                Names of_ranks;
                for (std::size_t step = 0; step < shape.micro_steps(); ++step) {
                    Names numbers;
                    for (std::size_t rank = 0; rank < world; ++rank) {
                        numbers.push_back(std::to_string(step * world + rank));
                    }
                    of_ranks.push_back(walked(numbers, shape.rank_group()).first);
                }
                auto const [found, most] = walked(of_ranks, shape.step_group());
                if (found != expected || most > shape.most_held()) {
                    INFO("V = " << all << ", b = " << group << ", W = " << world);
                    CHECK(found == expected);
                    CHECK(most <= shape.most_held());
                }
                fewer += most < shape.most_held() ? 1U : 0U;
                ++cases;
            }
        }
    }
    CHECK(cases == 674); // of which 426 have several ranks
    CHECK(fewer == 0);
}

TEST_CASE("Numbers of ranks that would cut a node are not admissible") {
    CHECK(ops::MicroBatchTree{6, 1, 2}.is_admissible());
    CHECK_FALSE(ops::MicroBatchTree{6, 1, 3}.is_admissible());
    CHECK(ops::MicroBatchTree{6, 3, 3}.is_admissible());
    CHECK(ops::MicroBatchTree{6, 3, 6}.is_admissible());
    CHECK_FALSE(ops::MicroBatchTree{6, 3, 2}.is_admissible());
    CHECK(ops::MicroBatchTree{12, 6, 2}.is_admissible());
    CHECK_FALSE(ops::MicroBatchTree{8, 1, 16}.is_admissible());
    CHECK_FALSE(ops::MicroBatchTree{8, 1, 0}.is_admissible());
    CHECK(tree(6, 1) == "(((0+1)+(2+3))+(4+5))"); // halves would be (0+1+2)+(3+4+5)
    CHECK(tree(6, 3) == "(((0+1)+2)+((3+4)+5))");
    CHECK(tree(7, 1) == "(((0+1)+(2+3))+((4+5)+6))");
}

} // namespace zero::test::tree_sum_test
