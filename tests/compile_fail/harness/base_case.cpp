// compiles
int main() {}
