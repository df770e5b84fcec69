// expect: zero: this type is refused
int main() {}
