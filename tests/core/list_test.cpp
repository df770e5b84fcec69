#include "support/catch.hpp"

#include <zero/core/detail/light_std.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace zero::test::list_test {

using zero::detail::List;

TEST_CASE("A list keeps its elements in order while it grows", "[core]") {
    List<std::size_t> list;
    CHECK(list.empty());
    for (std::size_t value = 0; value < 1000; ++value) {
        list.push_back(value * value);
    }
    REQUIRE(list.size() == 1000);
    std::size_t wrong = 0;
    for (std::size_t index = 0; index < list.size(); ++index) {
        wrong += list[index] != index * index ? 1U : 0U;
    }
    CHECK(wrong == 0);
    CHECK(static_cast<std::size_t>(list.end() - list.begin()) == 1000);
    CHECK(zero::detail::as_span(list).back() == 999 * 999);
}

TEST_CASE("A list of a given size holds default values", "[core]") {
    List<int*> const list(3);
    REQUIRE(list.size() == 3);
    CHECK((list[0] == nullptr && list[1] == nullptr && list[2] == nullptr));
}

TEST_CASE("Reserved capacity is used without moving an element", "[core]") {
    List<int> list;
    list.reserve(10);
    int const* const memory = list.data();
    for (int value = 0; value < 10; ++value) {
        list.push_back(value);
    }
    CHECK(list.data() == memory);
    CHECK(list[9] == 9);
}

TEST_CASE("Clearing a list destroys its elements and keeps its capacity", "[core]") {
    auto const counted = std::make_shared<int>(0);
    List<std::shared_ptr<int>> list{counted, counted};
    auto const* const memory = list.data();
    list.clear();
    CHECK(list.empty());
    CHECK(counted.use_count() == 1);
    list.push_back(counted);
    CHECK(list.data() == memory);
}

TEST_CASE("A list moves its elements and destroys each of them once", "[core]") {
    auto const counted = std::make_shared<int>(0);
    {
        List<std::shared_ptr<int>> first{counted, counted};
        first.push_back(counted);
        CHECK(counted.use_count() == 4);
        List<std::shared_ptr<int>> second(std::move(first));
        CHECK(first.empty()); // NOLINT: a moved-from list is empty
        CHECK(second.size() == 3);
        CHECK(counted.use_count() == 4);
        first = std::move(second);
        CHECK(first.size() == 3);
        CHECK(counted.use_count() == 4);
    }
    CHECK(counted.use_count() == 1);
}

} // namespace zero::test::list_test
